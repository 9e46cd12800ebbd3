// A segment of a plane: its tokens in the pages of a cache, its bytes, and the threads that work on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pages.h"
#include "tile.h"

namespace lynx {

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

// Tokens [start, start + tokens) of a sequence. The first `coded` stand in tiles; the others, and the first `sinks`,
// are exact rows.
struct Segment {
  int64_t start;
  int64_t tokens;
  int64_t coded;
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
