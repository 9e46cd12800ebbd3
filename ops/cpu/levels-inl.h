// The levels of 64 codes at once, where an instruction looks up bytes in 128 (AVX-512 VBMI); compiled once per
// instruction set (Highway's foreach_target).
#if defined(LYNX_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_LEVELS_INL_H_
#undef LYNX_LEVELS_INL_H_
#else
#define LYNX_LEVELS_INL_H_
#endif

#include "hwy/highway.h"
#include "tile.h"

#undef LYNX_BYTE_TABLES
#if HWY_TARGET == HWY_AVX3_DL
#define LYNX_BYTE_TABLES 1
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// kAll: all bits of the codes are known; else as many as the channels' widths.
template <bool kAll>
class ByteLevels {
  using D8 = hn::ScalableTag<uint8_t>;
  using V8 = hn::Vec<D8>;
  using D = hn::ScalableTag<float>;

 public:
  explicit ByteLevels(const Tables& tables)
      : tables_(tables), order_(hn::Load(D8(), tables.byte_order.data())) {}

  // u of 64 channels in their order. `unknown`: the bits of each channel that are not known; not read if kAll.
  HWY_INLINE void operator()(const uint8_t* codes, const uint8_t* unknown, hn::Vec<D>* u) const {
    const D8 d;
    const hn::Repartition<uint16_t, D8> d16;
    const V8 code = Permuted(hn::LoadU(d, codes));
    // The inverted bits back: the magnitude + 7 below the sign.
    V8 at = hn::Xor(code, hn::IfThenElseZero(hn::MaskFromVec(code), hn::Set(d, 0x70)));
    V8 bytes[4];
    if constexpr (kAll) {
      for (int k = 0; k < 4; ++k) bytes[k] = Lookup(tables_.level_bytes.data() + 128 * k, at);
    } else {
      at = Middle(hn::And(at, hn::Set(d, 0x7F)), Permuted(hn::LoadU(d, unknown)));
      const auto upper = hn::MaskFromVec(at);
      for (int k = 0; k < 4; ++k) {
        const uint8_t* table = tables_.middle_bytes.data() + 256 * k;
        bytes[k] = hn::IfThenElse(upper, Lookup(table + 128, at), Lookup(table, at));
      }
    }
    bytes[3] = hn::OrAnd(bytes[3], code, hn::Set(d, 0x80));
    const auto low_lower = hn::BitCast(d16, hn::InterleaveLower(d, bytes[0], bytes[1]));
    const auto low_upper = hn::BitCast(d16, hn::InterleaveUpper(d, bytes[0], bytes[1]));
    const auto high_lower = hn::BitCast(d16, hn::InterleaveLower(d, bytes[2], bytes[3]));
    const auto high_upper = hn::BitCast(d16, hn::InterleaveUpper(d, bytes[2], bytes[3]));
    u[0] = hn::BitCast(D(), hn::InterleaveLower(d16, low_lower, high_lower));
    u[1] = hn::BitCast(D(), hn::InterleaveUpper(d16, low_lower, high_lower));
    u[2] = hn::BitCast(D(), hn::InterleaveLower(d16, low_upper, high_upper));
    u[3] = hn::BitCast(D(), hn::InterleaveUpper(d16, low_upper, high_upper));
  }

 private:
  // So that the interleaving, which stays within 16 bytes, ends with the channels in their order.
  HWY_INLINE V8 Permuted(V8 v) const { return V8{_mm512_permutexvar_epi8(order_.raw, v.raw)}; }

  static HWY_INLINE V8 Lookup(const uint8_t* table, V8 at) {
    const D8 d;
    return V8{_mm512_permutex2var_epi8(hn::Load(d, table).raw, at.raw, hn::Load(d, table + 64).raw)};
  }

  // The sum of the first and the last magnitude that the known bits may stand for; 0 for what no magnitude has.
  static HWY_INLINE V8 Middle(V8 known, V8 unknown) {
    const D8 d;
    const V8 bias = hn::Set(d, kBias), most = hn::Set(d, kLevels);
    known = hn::AndNot(unknown, known);
    const V8 first = hn::SaturatedSub(known, bias);
    const V8 last = hn::Min(hn::SaturatedSub(hn::Or(known, unknown), bias), most);
    return hn::IfThenZeroElse(hn::Gt(first, most), hn::Add(first, last));
  }

  const Tables& tables_;
  V8 order_;
};

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
