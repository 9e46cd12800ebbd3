// Code bytes to bit planes in both streams and back; compiled once per instruction set (Highway's foreach_target).
#if defined(LYNX_BITPLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_BITPLANES_INL_H_
#undef LYNX_BITPLANES_INL_H_
#else
#define LYNX_BITPLANES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "channels.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR  // never chosen: see kernels.cc
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<uint8_t>;

// Bytes from one row of `dim` codes to the next: whole vectors, so that none reads or writes beside it.
inline size_t CodeStride(size_t dim) {
  const size_t lanes = hn::Lanes(Bytes());
  return (dim + lanes - 1) / lanes * lanes;
}

// Bit by bit `yes` where the mask is 1, else `no`.
template <class V>
HWY_INLINE V Select(V mask, V yes, V no) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::IfVecThenElse(mask, yes, no);  // one instruction; elsewhere it may look at whole lanes only
#else
  return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

// The bits of `high` at kMask and those of `low` above them change places. Shifts of 16 bits do: the masks drop what
// crosses from byte to byte.
template <int kDistance, uint8_t kMask, class V = hn::Vec<Bytes>>
HWY_INLINE void Swap(V& low, V& high) {
  const Bytes d;
  const hn::Repartition<uint16_t, Bytes> d16;
  const V mask = hn::Set(d, kMask);
  const V up = hn::BitCast(d, hn::ShiftLeft<kDistance>(hn::BitCast(d16, high)));
  const V down = hn::BitCast(d, hn::ShiftRight<kDistance>(hn::BitCast(d16, low)));
  low = Select(mask, low, up);
  high = Select(mask, down, high);
}

// Four rows: bit j of row i and bit i of row j change places, in the lower and in the upper half of each byte.
template <class V>
HWY_INLINE void TransposeHalves(V* rows) {
  Swap<2, 0x33>(rows[0], rows[2]);
  Swap<2, 0x33>(rows[1], rows[3]);
  Swap<1, 0x55>(rows[0], rows[1]);
  Swap<1, 0x55>(rows[2], rows[3]);
}

// Eight rows: bit j of row i and bit i of row j change places.
template <class V>
HWY_INLINE void Transpose(V* rows) {
  for (int i = 0; i < 4; ++i) Swap<4, 0x0F>(rows[i], rows[i + 4]);
  TransposeHalves(rows);
  TransposeHalves(rows + 4);
}

// One part of a row that is in both, 16 bytes at a time; what is written beyond the part's own bytes is written again
// later. `aside` has room for a row.
inline void Sort(const Row& row, bool anchor, const uint8_t* from, uint8_t* to, size_t count, const uint8_t* end,
                 uint8_t* aside) {
  const hn::CappedTag<uint8_t, kRowBlock> d;
  uint8_t* const target = static_cast<size_t>(end - to) >= count + kRowBlock ? to : aside;
  for (const RowBlock& block : row.blocks) {
    const auto order = hn::LoadU(d, anchor ? block.to_anchor : block.to_residual);
    const size_t before = anchor ? block.anchor_before : block.residual_before;
    hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d, from), order), d, target + before);
    from += kRowBlock;
  }
  if (target == aside) std::memcpy(to, aside, count);
}

// Undoes both Sorts; `residual` may be null, its bits then are 0. Reads up to 16 bytes beyond the row's, so these must
// be there.
inline void Merge(const Row& row, const uint8_t* anchor, const uint8_t* residual, uint8_t* to) {
  const hn::CappedTag<uint8_t, kRowBlock> d;
  for (const RowBlock& block : row.blocks) {
    auto bytes = hn::TableLookupBytesOr0(hn::LoadU(d, anchor + block.anchor_before), hn::LoadU(d, block.from_anchor));
    if (residual != nullptr) {
      bytes = hn::Or(bytes, hn::TableLookupBytesOr0(hn::LoadU(d, residual + block.residual_before),
                                                    hn::LoadU(d, block.from_residual)));
    }
    hn::StoreU(bytes, d, to);
    to += kRowBlock;
  }
}

// Bytes of scratch that WritePlanes and JoinRows need: eight rows, and a row and 16 bytes for each part.
inline size_t PlaneScratch(size_t dim) { return (kCodeBits + 2) * CodeStride(dim) + 2 * kRowBlock; }

// Starts of vectors over [0, dim), where at least one fits: the last may overlap its neighbour.
HWY_INLINE size_t NextStart(size_t c, size_t lanes, size_t dim) {
  return c + lanes >= dim ? dim : std::min(c + lanes, dim - lanes);
}

// `codes`: a row of CodeStride(dim) bytes for each token, of whole groups of them. `residual` is null where it is dropped.
inline void WritePlanes(const Channels& channels, const uint8_t* codes, size_t tokens, uint8_t* anchor,
                        uint8_t* residual, uint8_t* scratch) {
  const Bytes d;
  const size_t dim = channels.dim, stride = CodeStride(dim), lanes = hn::Lanes(d);
  const size_t rest = kCodeBits * dim - channels.bits;
  const bool narrow = dim < lanes;
  const uint8_t* const anchor_end = anchor + tokens / kGroup * channels.bits;
  uint8_t* const aside = scratch + kCodeBits * stride;
  for (size_t t = 0; t < tokens; t += kGroup, codes += kGroup * stride, anchor += channels.bits) {
    uint8_t* to[kCodeBits];
    const uint8_t* residual_end = residual + rest;  // of the rows that are in both: what follows is written before them
    for (size_t r = kCodeBits; r-- > 0;) {
      const Row& row = channels.rows[r];
      to[r] = scratch + r * stride;
      if (row.in_anchor == 0) residual_end = residual + row.residual_at;
      if (narrow) continue;
      if (row.in_anchor == dim) to[r] = anchor + row.anchor_at;
      if (row.in_anchor == 0 && residual != nullptr) to[r] = residual + row.residual_at;
    }
    const size_t end = narrow ? lanes : dim;
    for (size_t c = 0; c < end; c = NextStart(c, lanes, end)) {
      hn::Vec<Bytes> rows[kCodeBits];
      for (int i = 0; i < kGroup; ++i) rows[i] = hn::LoadU(d, codes + i * stride + c);
      Transpose(rows);
      for (int r = 0; r < kCodeBits; ++r) hn::StoreU(rows[kCodeBits - 1 - r], d, to[r] + c);
    }
    for (size_t r = 0; r < kCodeBits; ++r) {
      const Row& row = channels.rows[r];
      const uint8_t* bytes = scratch + r * stride;
      if (!row.blocks.empty()) {
        Sort(row, true, bytes, anchor + row.anchor_at, row.in_anchor, anchor_end, aside);
        if (residual == nullptr) continue;
        Sort(row, false, bytes, residual + row.residual_at, dim - row.in_anchor, residual_end, aside);
      } else if (narrow && row.in_anchor == dim) {
        std::memcpy(anchor + row.anchor_at, bytes, dim);
      } else if (narrow && residual != nullptr) {
        std::memcpy(residual + row.residual_at, bytes, dim);
      }
    }
    if (residual != nullptr) residual += rest;
  }
}

// The bytes of one part of a tile: where a group's start, and where the part ends.
struct Part {
  const uint8_t* at;  // null: not known, all bits are 0
  const uint8_t* end;

  // `count` bytes from `offset` on, with 16 more that may be read; `aside` has room for both.
  const uint8_t* From(size_t offset, size_t count, uint8_t* aside) const {
    const uint8_t* from = at + offset;
    if (static_cast<size_t>(end - from) >= count + kRowBlock) return from;
    std::memcpy(aside, from, count);
    return aside;
  }
};

// Where the rows of a group stand, put together in `scratch` where need be. Rows that are not known must be 0 there.
inline void JoinRows(const Channels& channels, const Part& anchor, const Part& residual, uint8_t* scratch,
                     const uint8_t** rows) {
  const size_t dim = channels.dim, stride = CodeStride(dim);
  const bool narrow = dim < hn::Lanes(Bytes());
  uint8_t* const aside = scratch + kCodeBits * stride;
  for (size_t r = 0; r < kCodeBits; ++r) {
    const Row& row = channels.rows[r];
    uint8_t* const joined = scratch + r * stride;
    rows[r] = joined;
    if (!row.blocks.empty()) {
      const uint8_t* front = anchor.From(row.anchor_at, row.in_anchor, aside);
      const uint8_t* rest = residual.at == nullptr ? nullptr
                                                   : residual.From(row.residual_at, dim - row.in_anchor,
                                                                   aside + stride + kRowBlock);
      Merge(row, front, rest, joined);
      continue;
    }
    const uint8_t* from = row.in_anchor == dim     ? anchor.at + row.anchor_at
                          : residual.at != nullptr ? residual.at + row.residual_at
                                                   : nullptr;
    if (from == nullptr) continue;
    if (narrow) {
      std::memcpy(joined, from, dim);
    } else {
      rows[r] = from;
    }
  }
}

// The code bytes of eight tokens, each CodeStride(dim) bytes.
inline void ReadCodes(size_t dim, const uint8_t* const* rows, uint8_t* codes) {
  const Bytes d;
  const size_t stride = CodeStride(dim), lanes = hn::Lanes(d), end = std::max(dim, lanes);
  for (size_t c = 0; c < end; c = NextStart(c, lanes, end)) {
    hn::Vec<Bytes> v[kGroup];
    for (int r = 0; r < kCodeBits; ++r) v[kCodeBits - 1 - r] = hn::LoadU(d, rows[r] + c);
    Transpose(v);
    for (int t = 0; t < kGroup; ++t) hn::StoreU(v[t], d, codes + t * stride + c);
  }
}

// The upper nibbles of eight codes in four rows: token t in the lower half of row t, token t + 4 in the upper half.
inline void ReadNibbles(size_t dim, const uint8_t* const* rows, uint8_t* codes) {
  const Bytes d;
  const size_t stride = CodeStride(dim), lanes = hn::Lanes(d), end = std::max(dim, lanes);
  for (size_t c = 0; c < end; c = NextStart(c, lanes, end)) {
    hn::Vec<Bytes> v[4];
    for (int r = 0; r < 4; ++r) v[3 - r] = hn::LoadU(d, rows[r] + c);
    TransposeHalves(v);
    for (int t = 0; t < 4; ++t) hn::StoreU(v[t], d, codes + t * stride + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
