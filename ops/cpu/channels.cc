#include "channels.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace lynx {
namespace {

// `widths`: of the block's channels, fewer than 16 at the end of a row.
RowBlock MakeBlock(const uint8_t* widths, size_t count, size_t row, size_t anchor_before, size_t residual_before) {
  RowBlock block;
  std::memset(&block, 0x80, sizeof(block));
  block.anchor_before = static_cast<uint32_t>(anchor_before);
  block.residual_before = static_cast<uint32_t>(residual_before);
  uint8_t anchor = 0, residual = 0;
  for (uint8_t c = 0; c < count; ++c) {
    if (row < widths[c]) {
      block.to_anchor[anchor] = c;
      block.from_anchor[c] = anchor++;
    } else {
      block.to_residual[residual] = c;
      block.from_residual[c] = residual++;
    }
  }
  return block;
}

}  // namespace

Channels::Channels(const std::vector<uint8_t>& widths) : dim(widths.size()), bits(0), plain(true), whole(true) {
  for (uint8_t width : widths) {
    if (width < 1 || width > kCodeBits) throw std::invalid_argument("channel widths are 1 to 8 bits");
    bits += width;
    plain = plain && width == 4;
    unknown.push_back(static_cast<uint8_t>((1 << (kCodeBits - width)) - 1));
    table_at.push_back(256 * width);
  }
  size_t anchor_at = 0, residual_at = 0;
  for (size_t r = 0; r < kCodeBits; ++r) {
    Row& row = rows[r];
    row.in_anchor = std::count_if(widths.begin(), widths.end(), [r](uint8_t width) { return r < width; });
    row.anchor_at = anchor_at;
    row.residual_at = residual_at;
    anchor_at += row.in_anchor;
    residual_at += dim - row.in_anchor;
    if (row.in_anchor == 0 || row.in_anchor == dim) continue;
    whole = false;
    size_t before = 0;
    for (size_t c = 0; c < dim; c += kRowBlock) {
      const size_t count = std::min<size_t>(kRowBlock, dim - c);
      row.blocks.push_back(MakeBlock(widths.data() + c, count, r, before, c - before));
      before += std::count_if(widths.begin() + c, widths.begin() + c + count, [r](uint8_t w) { return r < w; });
    }
  }
}

}  // namespace lynx
