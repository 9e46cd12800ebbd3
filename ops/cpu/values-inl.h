// Values in the source dtype to and from float32 vectors; compiled once per instruction set.
#if defined(LYNX_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_VALUES_INL_H_
#undef LYNX_VALUES_INL_H_
#else
#define LYNX_VALUES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "tile.h"

HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

constexpr size_t kLine = 64;  // bytes that memory moves at once

HWY_INLINE float* Aligned(float* p) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) & ~uintptr_t{63});
}

template <class D>
HWY_INLINE hn::Vec<D> ReadValues(D d, const Bfloat16* p) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> ReadValues(D d, const Float16* p) {
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
}

template <class D>
HWY_INLINE hn::Vec<D> ReadValues(D d, const float* p) {
  return hn::LoadU(d, p);
}

// A bfloat16 in the upper half of each lane, rounded to nearest even; not for NaN.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundUpperHalf(D /*d*/, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
}

// To nearest even, and within float16.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<hwy::float16_t, D>> ToFloat16(D d, hn::Vec<D> v) {
  const auto bound = hn::Set(d, 65504.0f);
  return hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), hn::Min(hn::Max(v, hn::Neg(bound)), bound));
}

template <class D>
HWY_INLINE void WriteValues(D d, hn::Vec<D> v, Bfloat16* p) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::RebindToSigned<D> di;
  const auto rounded = hn::ShiftRight<16>(RoundUpperHalf(d, v));
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, rounded)), du16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void WriteValues(D d, hn::Vec<D> v, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(ToFloat16(d, v), dh, reinterpret_cast<hwy::float16_t*>(p));
}

template <class D>
HWY_INLINE void WriteValues(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// The 16-bit values of two vectors, in order.
template <class D>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> HalvesOf(D d, hn::Vec<D> low, hn::Vec<D> high, const Bfloat16*) {
  const hn::Repartition<uint16_t, D> d16;
  return hn::ConcatOdd(d16, hn::BitCast(d16, RoundUpperHalf(d, high)), hn::BitCast(d16, RoundUpperHalf(d, low)));
}

template <class D>
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, D>> HalvesOf(D d, hn::Vec<D> low, hn::Vec<D> high, const Float16*) {
  const hn::Repartition<uint16_t, D> d16;
  const hn::Half<decltype(d16)> half;
  return hn::Combine(d16, hn::BitCast(half, ToFloat16(d, high)), hn::BitCast(half, ToFloat16(d, low)));
}
#endif

// Two neighbouring vectors. `stream`: past the caches; p then starts a line.
template <class D, class T>
HWY_INLINE void WritePair(D d, hn::Vec<D> low, hn::Vec<D> high, bool stream, T* p) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(T) == 2 && hn::MaxLanes(D()) == 16) {
    const auto line = HalvesOf(d, low, high, p);
    const hn::DFromV<decltype(line)> dline;
    if (stream) {
      hn::Stream(line, dline, reinterpret_cast<uint16_t*>(p));
    } else {
      hn::StoreU(line, dline, reinterpret_cast<uint16_t*>(p));
    }
    return;
  }
#endif
  if constexpr (sizeof(T) == 4) {
    if (stream) {
      hn::Stream(low, d, reinterpret_cast<float*>(p));
      hn::Stream(high, d, reinterpret_cast<float*>(p) + hn::Lanes(d));
      return;
    }
  }
  WriteValues(d, low, p);
  WriteValues(d, high, p + hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();

#endif  // include guard
