// Values from where an index says; compiled once per instruction set (Highway's foreach_target).
#if defined(LYNX_PERMUTE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_PERMUTE_INL_H_
#undef LYNX_PERMUTE_INL_H_
#else
#define LYNX_PERMUTE_INL_H_
#endif

#include "hwy/cache_control.h"
#include "values-inl.h"

#if HWY_TARGET != HWY_SCALAR  // never chosen: see kernels.cc
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void Put(D d, hn::Vec<D> v, bool stream, T* to) {
  if (stream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Whole lines at once only: half a line past the caches is slower than none.
template <class D>
bool StreamsTo(D d, const void* to) {
  return hn::Lanes(d) * sizeof(hn::TFromD<D>) == kLine && reinterpret_cast<uintptr_t>(to) % kLine == 0;
}

inline void Permute32(const int32_t* index, size_t count, const int32_t* from, int32_t* to, bool stream) {
  const hn::ScalableTag<int32_t> d;
  const size_t lanes = hn::Lanes(d);
  stream = stream && StreamsTo(d, to);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Put(d, hn::GatherIndex(d, from, hn::LoadU(d, index + i)), stream, to + i);
  }
  for (; i < count; ++i) to[i] = from[index[i]];
}

// There are no gathers of 16 bits: each takes the pair that its value stands in.
inline void Permute16(const int32_t* index, size_t count, const uint16_t* from, uint16_t* to, bool stream) {
  const hn::ScalableTag<int32_t> d;
  const hn::ScalableTag<uint16_t> d16;
  const size_t lanes = hn::Lanes(d);
  const auto* pairs = reinterpret_cast<const int32_t*>(from);
  const auto one = hn::Set(d, 1);
  const auto load = [&](size_t i) HWY_ATTR {
    const auto at = hn::LoadU(d, index + i);
    const auto pair = hn::GatherIndex(d, pairs, hn::ShiftRight<1>(at));
    const auto upper = hn::Eq(hn::And(at, one), one);
    return hn::BitCast(d16, hn::IfThenElse(upper, hn::ShiftRight<16>(pair), pair));
  };
  stream = stream && StreamsTo(d16, to);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    Put(d16, hn::ConcatEven(d16, load(i + lanes), load(i)), stream, to + i);
  }
  for (; i < count; ++i) to[i] = from[index[i]];
}

void PermuteAny(const int32_t* index, size_t count, size_t item, const void* from, void* to, bool stream) {
  if (item == 2) {
    Permute16(index, count, static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), stream);
  } else {
    Permute32(index, count, static_cast<const int32_t*>(from), static_cast<int32_t*>(to), stream);
  }
  if (stream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
