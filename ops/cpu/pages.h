// A plane in the pages of a cache: where its values stand, and moving them out and in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "packing.h"
#include "tile.h"

namespace lynx {

// Strides in values. `packing`, if given, is that of a head's part of a block; token and channel strides are then not
// used.
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
  std::shared_ptr<const Packing> packing;
};

// The values of a segment, token by token of one head. Tokens count from the segment's first, `start`.
class Rows {
 public:
  Rows(const Pages& pages, int64_t start, int dim)
      : pages_(pages),
        packing_(pages.packing.get()),
        token_stride_(pages.token_stride),
        channel_stride_(pages.channel_stride),
        start_(start),
        dim_(dim),
        item_(ItemSize(pages.dtype)) {
    if (packing_ != nullptr && packing_->identity) {
      packing_ = nullptr;
      token_stride_ = dim;
      channel_stride_ = 1;
    }
  }

  // Whether a token's values are neighbours in their order.
  bool Direct() const { return packing_ == nullptr && channel_stride_ == 1; }

  // The rows of `count` tokens; only if Direct().
  void Fill(size_t head, int64_t token, int64_t count, void** to) const {
    const int64_t step = token_stride_ * item_;
    EachBlock(token, count, [&](int64_t block, int64_t within, int64_t run) {
      uint8_t* row = Part(head, block) + within * step;
      for (int64_t k = 0; k < run; ++k) *to++ = row + k * step;
    });
  }

  // Values of `count` tokens, one after the other. `to` is aligned as values are.
  void Read(size_t head, int64_t token, int64_t count, void* to) const {
    auto* next = static_cast<uint8_t*>(to);
    EachBlock(token, count, [&](int64_t block, int64_t within, int64_t run) {
      const uint8_t* part = Part(head, block);
      if (packing_ != nullptr) {
        packing_->Read(part, within * dim_, run * dim_, item_, next);
      } else {
        EachValue(within, run, [&](size_t size, int64_t at, size_t i) { std::memcpy(next + i, part + at, size); });
      }
      next += run * dim_ * item_;
    });
  }

  // `from` is aligned as values are.
  void Write(size_t head, int64_t token, int64_t count, const void* from) const {
    auto* next = static_cast<const uint8_t*>(from);
    EachBlock(token, count, [&](int64_t block, int64_t within, int64_t run) {
      uint8_t* part = Part(head, block);
      if (packing_ == nullptr) {
        EachValue(within, run, [&](size_t size, int64_t at, size_t i) { std::memcpy(part + at, next + i, size); });
      } else if (run == pages_.block_size) {
        packing_->WriteAll(next, item_, part);
      } else {
        packing_->Write(next, within * dim_, run * dim_, item_, part);
      }
      next += run * dim_ * item_;
    });
  }

 private:
  // work(block, first token in it, tokens) for each run of tokens in one block.
  template <class Work>
  void EachBlock(int64_t token, int64_t count, const Work& work) const {
    for (int64_t at = start_ + token, end = at + count; at < end;) {
      const int64_t within = at % pages_.block_size;
      const int64_t run = std::min(end - at, pages_.block_size - within);
      work(at / pages_.block_size, within, run);
      at += run;
    }
  }

  uint8_t* Part(size_t head, int64_t block) const {
    return pages_.data +
           (pages_.table[block] * pages_.block_stride + static_cast<int64_t>(head) * pages_.head_stride) *
               static_cast<int64_t>(item_);
  }

  // move(bytes, bytes into the part, bytes into the rows) for what stands together in strided rows.
  template <class Move>
  void EachValue(int64_t within, int64_t run, const Move& move) const {
    const int64_t item = static_cast<int64_t>(item_);
    size_t i = 0;
    for (int64_t t = within; t < within + run; ++t) {
      const int64_t row = t * token_stride_;
      if (channel_stride_ == 1) {
        move(dim_ * item_, row * item, i);
        i += dim_ * item_;
      } else if (item_ == 2) {  // sizes that the compiler knows
        for (int64_t c = 0; c < dim_; ++c, i += 2) move(2, (row + c * channel_stride_) * 2, i);
      } else {
        for (int64_t c = 0; c < dim_; ++c, i += 4) move(4, (row + c * channel_stride_) * 4, i);
      }
    }
  }

  const Pages& pages_;
  const Packing* packing_;  // null where rows stand as such
  int64_t token_stride_, channel_stride_, start_;
  int dim_;
  size_t item_;
};

}  // namespace lynx
