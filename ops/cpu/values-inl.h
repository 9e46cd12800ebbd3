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

// To nearest even; not for NaN.
template <class D>
HWY_INLINE void WriteValues(D /*d*/, hn::Vec<D> v, Bfloat16* p) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, rounded)), du16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void WriteValues(D d, hn::Vec<D> v, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto bound = hn::Set(d, 65504.0f);
  v = hn::Min(hn::Max(v, hn::Neg(bound)), bound);
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
}

template <class D>
HWY_INLINE void WriteValues(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();

#endif  // include guard
