// A segment of a plane: its tokens in the pages of a cache, its bytes, and the threads that work on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tile.h"

namespace lynx {

// Where the values of a plane stand. Strides in values. `place`, if given, is the position of (token, channel) within a
// head's part of a block; token and channel strides are then not used.
struct Pages {
  uint8_t* data;
  Dtype dtype;
  const int64_t* table;  // block of each run of `block_size` tokens of the sequence
  int64_t table_size;
  int64_t blocks;  // ids in the table are below it
  int64_t block_size;
  int64_t block_stride;
  int64_t head_stride;
  int64_t token_stride;
  int64_t channel_stride;
  const int64_t* place;
};

// What both ends agree on about a plane.
struct Coding {
  std::shared_ptr<const Tables> tables;
  std::vector<Channels> heads;
  int dim;
  int page;
  int chunk;
  bool token_scale;
  bool mean;
  bool has_residual;
};

// Tokens [start, start + tokens) of a sequence; its first `sinks`, its last `recent` and what before those fills no
// chunk are exact rows.
struct Segment {
  int64_t start;
  int64_t tokens;
  int64_t recent;
  int64_t sinks;
};

// False: a tile must travel raw, and the streams hold nothing of use. Throws std::invalid_argument where the pages do
// not hold the segment or a stream has another size than a segment without raw tiles.
bool EncodeSegment(const Coding& coding, const Pages& pages, const Segment& segment, uint8_t* anchor,
                   size_t anchor_size, uint8_t* residual, size_t residual_size, int threads);

// Writes the tokens of the segment from `skip` on. False, with nothing written: a flag is set, a size is off or a gamma
// is not finite, so that this is no segment without raw tiles. `residual` is null where the anchor is decoded alone.
bool DecodeSegment(const Coding& coding, const Pages& pages, const Segment& segment, int64_t skip,
                   const uint8_t* anchor, size_t anchor_size, const uint8_t* residual, size_t residual_size,
                   int threads);

}  // namespace lynx
