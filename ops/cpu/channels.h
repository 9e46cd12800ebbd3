// Which bytes of a head's bit planes travel in the anchor, and which in the residual.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lynx {

constexpr int kCodeBits = 8;
constexpr int kGroup = 8;     // tokens whose codes make one row of bytes per bit
constexpr int kRowBlock = 16;  // bytes of a row that are sorted at once

// Sorts 16 bytes of a row. An index of 0x80 gives a zero.
struct RowBlock {
  uint8_t to_anchor[kRowBlock];      // the anchor's bytes first, ascending
  uint8_t to_residual[kRowBlock];    // the residual's bytes first
  uint8_t from_anchor[kRowBlock];    // back: the place of each channel among the anchor's bytes
  uint8_t from_residual[kRowBlock];
  uint32_t anchor_before;            // the row's bytes in the anchor ahead of this block's
  uint32_t residual_before;
};

// One bit of all channels of eight tokens.
struct Row {
  size_t in_anchor;            // its bytes in the anchor; the others are in the residual
  size_t anchor_at;            // where they start within a group's bytes
  size_t residual_at;
  std::vector<RowBlock> blocks;  // of a row that is in both, else empty
};

struct Channels {
  // One width, 1 to 8, per channel. Throws std::invalid_argument on others.
  explicit Channels(const std::vector<uint8_t>& widths);

  size_t dim;
  size_t bits;                   // of a token in the anchor: the sum of the widths
  bool plain;                    // every width is 4
  bool whole;                    // every row is in one part
  std::array<Row, kCodeBits> rows;
  std::vector<uint8_t> unknown;   // the bits of a channel's codes that are not in the anchor
  std::vector<int32_t> table_at;  // 256 * width, where a channel's values start in Tables::anchor_level
};

}  // namespace lynx
