// Encoder of one tile; compiled once per instruction set (Highway's foreach_target).
#if defined(LYNX_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_ENCODE_INL_H_
#undef LYNX_ENCODE_INL_H_
#else
#define LYNX_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "bitplanes-inl.h"
#include "hwy/cache_control.h"
#include "values-inl.h"

#if HWY_TARGET != HWY_SCALAR  // never chosen: see kernels.cc
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

// a / b, correctly rounded. The fast form is Markstein's: with y = 1/b rounded correctly, the second correction of
// a * y by its exact remainder rounds as a division does, unless something falls below the normal numbers.
template <bool kFast, class D, class V = hn::Vec<D>>
HWY_INLINE V Divide(D /*d*/, V a, V b, V y) {
  if constexpr (!kFast) return hn::Div(a, b);
  V q = hn::Mul(a, y);
  q = hn::MulAdd(hn::NegMulAdd(q, b, a), y, q);
  return hn::MulAdd(hn::NegMulAdd(q, b, a), y, q);
}

// Bits of the largest float16 not above v, in int32 lanes; zeros keep their sign.
template <class D, class V = hn::Vec<D>, class DI = hn::RebindToSigned<D>>
HWY_INLINE hn::Vec<DI> Float16Down(D d, V v) {
  const DI di;
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<uint16_t, D> du16;
  const auto half = hn::DemoteTo(dh, v);
  const auto nearest = hn::PromoteTo(d, half);
  const auto bits = hn::PromoteTo(di, hn::BitCast(du16, half));
  const auto one = hn::Set(di, 1);
  const auto positive = RebindMask(di, hn::Gt(nearest, hn::Zero(d)));
  const auto zero = RebindMask(di, hn::Eq(nearest, hn::Zero(d)));
  auto below = hn::IfThenElse(positive, hn::Sub(bits, one), hn::Add(bits, one));
  below = hn::IfThenElse(zero, hn::Set(di, 0x8001), below);
  return hn::IfThenElse(RebindMask(di, hn::Gt(nearest, v)), below, bits);
}

template <class D, class VI>
HWY_INLINE hn::Vec<D> FromFloat16Bits(D d, VI bits) {
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<uint16_t, D> du16;
  return hn::PromoteTo(d, hn::BitCast(dh, hn::DemoteTo(du16, bits)));
}

// What a chunk's values of some channels have in common.
template <class V>
struct Scales {
  V base, width, mu, sigma;
};

// The code byte of each x in int32 lanes, as the format defines it.
template <class D, class V = hn::Vec<D>, class DI = hn::RebindToSigned<D>>
HWY_NOINLINE hn::Vec<DI> ExactCodes(D d, const Tables& t, const Scales<V>& s, V x) {
  const DI di;
  const V xn = hn::Div(hn::Sub(x, s.base), s.width);
  const V u = hn::Div(hn::Sub(xn, s.mu), s.sigma);
  const V size = hn::Abs(u);
  // In range by the format; the clamp is for a cache that another thread writes to meanwhile.
  auto cell = hn::ConvertTo(di, hn::Mul(size, hn::Set(d, t.cells)));
  cell = hn::Min(hn::Max(cell, hn::Zero(di)), hn::Set(di, static_cast<int32_t>(t.cells)));
  const auto above = RebindMask(di, hn::Gt(size, hn::GatherIndex(d, t.inside.data(), cell)));
  const auto magnitude =
      hn::Add(hn::GatherIndex(di, t.below.data(), cell), hn::IfThenElseZero(above, hn::Set(di, 1)));
  const auto negative = RebindMask(di, hn::Lt(u, hn::Zero(d)));
  return hn::Xor(hn::Add(magnitude, hn::Set(di, kBias)), hn::IfThenElseZero(negative, hn::Set(di, 0xF0)));
}

// The same in two multiplications and a polynomial, exact wherever it is sure; else it asks ExactCodes. The code is in
// the low byte of each lane, above it stands rubbish.
template <class D>
class QuickCodes {
  using V = hn::Vec<D>;
  using DI = hn::RebindToSigned<D>;

 public:
  QuickCodes(D d, const Tables& t, const Scales<V>& scales) : tables_(t), scales_(scales) {
    const V one = hn::Set(d, 1.0f);
    const V sigma_inverse = hn::Div(one, scales.sigma);
    // 0 - base: then a value of -0 on a base of 0 gives +0, whose code is that of +0 in the format too.
    minus_base_ = hn::Sub(hn::Zero(d), scales.base);
    factor_ = hn::Mul(hn::Div(one, scales.width), sigma_inverse);
    offset_ = hn::Neg(hn::Mul(scales.mu, sigma_inverse));
    // This u and the format's are both within a few roundings, 7 * 2^-24 / sigma + 2 * 2^-24, of the true quotient.
    error_ = hn::Mul(sigma_inverse, hn::Set(d, 9.5f / (1 << 24)));
    sure_ = hn::Sub(hn::Set(d, 0.5f - t.doubt), hn::Mul(error_, hn::Set(d, t.slope)));
    for (int k = 0; k <= Tables::kDegree; ++k) curve_[k] = hn::Set(d, t.curve[k]);
  }

  HWY_INLINE hn::Vec<DI> operator()(D d, V x) const {
    const DI di;
    const V u = hn::MulAdd(hn::Add(x, minus_base_), factor_, offset_);
    const V size = hn::Abs(u);
    const V at = hn::MulAdd(size, hn::Set(d, 2.0f), hn::Set(d, -1.0f));
    V y = curve_[0];
    for (int k = 1; k <= Tables::kDegree; ++k) y = hn::MulAdd(y, at, curve_[k]);
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const V shifter = hn::Set(d, 12582912.0f);
    const V shifted = hn::Add(y, shifter);
    const V off = hn::Abs(hn::Sub(y, hn::Sub(shifted, shifter)));
    // So near 0 that its sign is open, or so near a boundary that its magnitude is.
    const auto sure = hn::And(hn::Lt(off, sure_), hn::Gt(size, error_));
    if (HWY_UNLIKELY(!hn::AllTrue(d, sure))) return ExactCodes(d, tables_, scales_, x);
    const auto negative = hn::ShiftRight<31>(hn::BitCast(di, u));
    return hn::Xor(hn::BitCast(di, shifted), hn::And(negative, hn::Set(di, 0xF0)));
  }

 private:
  const Tables& tables_;
  const Scales<V>& scales_;
  V minus_base_, factor_, offset_, error_, sure_;
  V curve_[Tables::kDegree + 1];
};

template <class D, class V = hn::Vec<D>, class DI = hn::RebindToSigned<D>>
HWY_INLINE hn::Vec<DI> SigmaCodes(D d, const Tables& t, V reach) {
  const DI di;
  const auto first = hn::Set(di, Tables::kSigmaFirst);
  auto cell = hn::Sub(hn::ShiftRight<17>(hn::BitCast(di, hn::Abs(reach))), first);
  cell = hn::Min(hn::Max(cell, hn::Zero(di)), hn::Set(di, Tables::kSigmaCells - 1));
  const auto above = RebindMask(di, hn::Gt(reach, hn::GatherIndex(d, t.sigma_inside.data(), cell)));
  return hn::Sub(hn::GatherIndex(di, t.sigma_code.data(), cell), hn::IfThenElseZero(above, hn::Set(di, 1)));
}

// What a first look at the rows tells: nothing is above float16, and no value is so small that the fast division fails.
struct Survey {
  bool fits;
  bool fast;
};

template <class T>
Survey LookAtRows(const Tile& tile, const void* const* rows, int32_t* row_bits) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(di, 0x7FFFFFFF);
  auto smallest = hn::Set(du, ~0u);
  int32_t largest = 0;
  uint32_t least = ~0u;
  const size_t dim = tile.dim;
  for (int t = 0; t < tile.tokens; ++t) {
    const T* row = static_cast<const T*>(rows[t]);
    auto top = hn::Zero(di);
    size_t c = 0;
    for (; c + lanes <= dim; c += lanes) {
      const auto bits = hn::And(hn::BitCast(di, ReadValues(d, row + c)), mask);
      top = hn::Max(top, bits);
      smallest = hn::Min(smallest, hn::Sub(hn::BitCast(du, bits), hn::Set(du, 1)));  // a zero becomes the largest
    }
    int32_t bits = hn::GetLane(hn::MaxOfLanes(di, top));
    const hn::CappedTag<float, 1> d1;
    for (; c < dim; ++c) {
      const float value = hn::GetLane(ReadValues(d1, row + c));
      int32_t one;
      std::memcpy(&one, &value, 4);
      one &= 0x7FFFFFFF;
      bits = std::max(bits, one);
      least = std::min(least, static_cast<uint32_t>(one) - 1);
    }
    row_bits[t] = bits;
    largest = std::max(largest, bits);
  }
  least = std::min(least, hn::GetLane(hn::MinOfLanes(du, smallest)));
  constexpr int32_t kFloat16Max = 0x477FE000;  // 65504; an infinity and a NaN have larger bits
  constexpr uint32_t kTiny = (127u - 60u) << 23;
  return {largest <= kFloat16Max, least >= kTiny - 1};
}

// The smallest code whose scale is at least the number with these bits.
inline int TokenScaleCode(const Tables& t, int32_t bits) {
  const int exponent = (bits >> 23) - 127;
  if (exponent < -32) return 0;
  const int at = 128 + 4 * exponent;
  float value;
  std::memcpy(&value, &bits, 4);
  int code = at;
  for (int i = at; i < at + 4 && i < 255; ++i) code += value > t.token_scale[i];
  return code;
}

// The mean of (x - base) / width over the `count` tokens of a chunk: its halves added until one is left, 0 for a token
// that is missing.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE V Mean(D d, const float* x, int count, int chunk, V base, V width, float* sums) {
  const size_t lanes = hn::Lanes(d);
  for (int t = 0; t < count; ++t) {
    hn::Store(hn::Div(hn::Sub(hn::Load(d, x + t * lanes), base), width), d, sums + t * lanes);
  }
  for (int t = count; t < chunk; ++t) hn::Store(hn::Zero(d), d, sums + t * lanes);
  for (int rest = chunk / 2; rest >= 1; rest /= 2) {
    for (int t = 0; t < rest; ++t) {
      hn::Store(hn::Add(hn::Load(d, sums + t * lanes), hn::Load(d, sums + (t + rest) * lanes)), d,
                sums + t * lanes);
    }
  }
  return hn::Div(hn::Load(d, sums), hn::Set(d, static_cast<float>(count)));
}

// The lowest byte of each lane.
template <class D, class VI>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, D>> LowBytes(D /*d*/, VI v) {
#if HWY_TARGET == HWY_AVX3_DL  // whose TruncateTo takes the wrong bytes in Highway 1.0.3
  if constexpr (hn::MaxLanes(D()) == 16) return {_mm512_cvtepi32_epi8(v.raw)};
#endif
  return hn::TruncateTo(hn::Rebind<uint8_t, D>(), hn::BitCast(hn::RebindToUnsigned<D>(), v));
}

// The code byte of every value of a chunk's `count` tokens, `stride` bytes from token to token. Meanwhile memory fetches,
// `offset` bytes from their start, the rows `next` that come later, unless that is null.
template <class D, class Coder>
HWY_INLINE void EncodeChunk(D d, const Coder& coder, const float* x, int count, size_t stride, uint8_t* codes,
                            const void* const* next, size_t offset) {
  const hn::Rebind<uint8_t, D> du8;
  const size_t lanes = hn::Lanes(d);
  for (int t = 0; t < count; t += 2, x += 2 * lanes, codes += 2 * stride) {  // two, for their chains overlap
    if (next != nullptr) {
      hwy::Prefetch(static_cast<const uint8_t*>(next[t]) + offset);
      hwy::Prefetch(static_cast<const uint8_t*>(next[t + 1]) + offset);
    }
    const auto a = coder(d, hn::Load(d, x));
    const auto b = coder(d, hn::Load(d, x + lanes));
    hn::StoreU(LowBytes(d, a), du8, codes);
    hn::StoreU(LowBytes(d, b), du8, codes + stride);
  }
}

template <class D, class T, bool kFast>
bool EncodeColumn(D d, const Tile& tile, const void* const* rows, const void* const* next, size_t channel,
                  const float* scales, uint8_t* anchor, uint8_t* codes, float* values) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const hn::Rebind<uint16_t, D> du16;
  using V = hn::Vec<D>;
  const Tables& tables = *tile.tables;
  const size_t lanes = hn::Lanes(d);
  const size_t dim = tile.dim, stride = CodeStride(dim);
  const int chunks = tile.Chunks(), chunk = tile.chunk;
  float* lows = values + tile.tokens * lanes;
  float* highs = lows + chunks * lanes;
  float* sums = highs + chunks * lanes;

  constexpr float kMost = std::numeric_limits<float>::max();
  V page_low = hn::Set(d, kMost), page_high = hn::Set(d, -kMost);
  for (int n = 0; n < chunks; ++n) {
    V low = hn::Set(d, kMost), high = hn::Set(d, -kMost);
    for (int t = n * chunk; t < std::min((n + 1) * chunk, tile.tokens); ++t) {
      V x = ReadValues(d, static_cast<const T*>(rows[t]) + channel);
      if (tile.token_scale) x = Divide<kFast>(d, x, hn::Set(d, scales[2 * t]), hn::Set(d, scales[2 * t + 1]));
      low = hn::Min(low, x);
      high = hn::Max(high, x);
      hn::Store(x, d, values + t * lanes);
    }
    hn::Store(low, d, lows + n * lanes);
    hn::Store(high, d, highs + n * lanes);
    page_low = hn::Min(page_low, low);
    page_high = hn::Max(page_high, high);
  }

  // -0 + 0 is +0: which of the zeros a minimum returned is then no matter.
  const V zero = hn::Zero(d);
  const auto min_bits = Float16Down(d, hn::Add(page_low, zero));
  const V base = FromFloat16Bits(d, min_bits);
  const auto sign = hn::Set(di, 0x8000);
  auto scale_bits = hn::Xor(Float16Down(d, hn::Neg(hn::Add(hn::Sub(page_high, base), zero))), sign);
  const auto shorter = RebindMask(di, hn::Lt(hn::Add(base, FromFloat16Bits(d, scale_bits)), page_high));
  scale_bits = hn::Add(scale_bits, hn::IfThenElseZero(shorter, hn::Set(di, 1)));
  if (!hn::AllTrue(di, hn::Lt(scale_bits, hn::Set(di, 0x7C00)))) return false;
  hn::StoreU(hn::DemoteTo(du16, min_bits), du16, reinterpret_cast<uint16_t*>(anchor) + channel);
  hn::StoreU(hn::DemoteTo(du16, scale_bits), du16, reinterpret_cast<uint16_t*>(anchor) + dim + channel);

  V width = FromFloat16Bits(d, scale_bits);
  width = hn::IfThenElse(hn::Eq(width, zero), hn::Set(d, 1.0f), width);
  uint8_t* mus = anchor + 4 * dim + channel;
  uint8_t* sigmas = mus + chunks * dim;
  for (int n = 0; n < chunks; ++n) {
    const float* x = values + static_cast<size_t>(n) * chunk * lanes;
    const int count = std::min(chunk, tile.tokens - n * chunk);
    const V low = hn::Div(hn::Sub(hn::Load(d, lows + n * lanes), base), width);
    const V high = hn::Div(hn::Sub(hn::Load(d, highs + n * lanes), base), width);
    const V center = tile.mean ? hn::Mul(Mean(d, x, count, chunk, base, width, sums), hn::Set(d, 255.0f))
                               : hn::Mul(hn::Add(low, high), hn::Set(d, 127.5f));
    const auto mu_code = hn::And(hn::NearestInt(center), hn::Set(di, 255));  // as it is, unless the cache changes
    const V mu = hn::GatherIndex(d, tables.fraction.data(), mu_code);
    const auto sigma_code = SigmaCodes(d, tables, hn::Max(hn::Sub(high, mu), hn::Sub(mu, low)));
    const V sigma = hn::GatherIndex(d, tables.sigma.data(), sigma_code);
    hn::StoreU(hn::DemoteTo(du8, mu_code), du8, mus + n * dim);
    hn::StoreU(hn::DemoteTo(du8, sigma_code), du8, sigmas + n * dim);
    const Scales<V> parameters{base, width, mu, sigma};
    uint8_t* const to = codes + static_cast<size_t>(n) * chunk * stride + channel;
    const size_t offset = channel * sizeof(T);
    const void* const* later = next == nullptr || offset % kLine >= lanes * sizeof(T) ? nullptr : next + n * chunk;
    if (HWY_LIKELY(tables.fitted)) {
      EncodeChunk(d, QuickCodes<D>(d, tables, parameters), x, count, stride, to, later, offset);
    } else {
      const auto exact = [&](D tag, V value) HWY_ATTR { return ExactCodes(tag, tables, parameters, value); };
      EncodeChunk(d, exact, x, count, stride, to, later, offset);
    }
  }
  return true;
}

template <class D, class T, bool kFast>
bool EncodeColumns(D d, const Tile& tile, const void* const* rows, const void* const* next, const float* scales,
                   uint8_t* anchor, uint8_t* codes, float* values) {
  const size_t lanes = hn::Lanes(d), dim = tile.dim;
  for (size_t channel = 0;;) {
    if (!EncodeColumn<D, T, kFast>(d, tile, rows, next, channel, scales, anchor, codes, values)) {
      return false;
    }
    if (channel + lanes >= dim) return true;
    // The last vector overlaps its neighbour where the channels fill no whole number of vectors: it writes the same.
    channel = std::min(channel + lanes, dim - lanes);
  }
}

template <class T, bool kFast>
bool EncodeRows(const Tile& tile, const void* const* rows, const void* const* next, const float* scales,
                uint8_t* anchor, uint8_t* codes, float* values) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> single;
  if (static_cast<size_t>(tile.dim) >= hn::Lanes(d)) {
    return EncodeColumns<decltype(d), T, kFast>(d, tile, rows, next, scales, anchor, codes, values);
  }
  return EncodeColumns<decltype(single), T, kFast>(single, tile, rows, next, scales, anchor, codes, values);
}

template <class T>
bool EncodeTyped(const Tile& tile, const void* const* rows, const void* const* next, uint8_t* anchor,
                 uint8_t* residual, Scratch& scratch) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d), tokens = tile.tokens, dim = tile.dim;
  scratch.values.resize((tokens + tile.chunk + 2 * tile.Chunks()) * lanes + 64);
  scratch.parameters.resize(3 * tokens);
  scratch.codes.resize(tokens * CodeStride(dim));
  scratch.planes.resize(PlaneScratch(dim));
  float* values = Aligned(scratch.values.data());
  float* scales = scratch.parameters.data();
  int32_t* row_bits = reinterpret_cast<int32_t*>(scales + 2 * tokens);

  const Survey survey = LookAtRows<T>(tile, rows, row_bits);
  if (!survey.fits) return false;
  uint8_t* const planes = anchor + tile.HeaderBytes();
  if (tile.token_scale) {
    for (size_t t = 0; t < tokens; ++t) {
      const int code = TokenScaleCode(*tile.tables, row_bits[t]);
      planes[t - tokens] = static_cast<uint8_t>(code);
      scales[2 * t] = tile.tables->token_scale[code];
      scales[2 * t + 1] = 1.0f / scales[2 * t];
    }
  }
  uint8_t* const codes = scratch.codes.data();
  const bool done = survey.fast ? EncodeRows<T, true>(tile, rows, next, scales, anchor, codes, values)
                                : EncodeRows<T, false>(tile, rows, next, scales, anchor, codes, values);
  if (!done) return false;
  WritePlanes(*tile.channels, codes, tokens, planes, tile.has_residual ? residual : nullptr, scratch.planes.data());
  return true;
}

bool EncodeAny(const Tile& tile, const void* const* rows, const void* const* next, uint8_t* anchor, uint8_t* residual,
               Scratch& scratch) {
  switch (tile.dtype) {
    case Dtype::kBfloat16:
      return EncodeTyped<Bfloat16>(tile, rows, next, anchor, residual, scratch);
    case Dtype::kFloat16:
      return EncodeTyped<Float16>(tile, rows, next, anchor, residual, scratch);
    default:
      return EncodeTyped<float>(tile, rows, next, anchor, residual, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
