// Decoder of one tile; compiled once per instruction set (Highway's foreach_target).
#if defined(LYNX_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_DECODE_INL_H_
#undef LYNX_DECODE_INL_H_
#else
#define LYNX_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

// A table of 8 floats at int32 indices. `twice` holds it two times over, so that it fills the widest vector.
template <class D, class VI>
HWY_INLINE hn::Vec<D> LookUp8(D d, const float* twice, VI index) {
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  if constexpr (hn::MaxLanes(D()) >= 8) {
    return hn::TableLookupLanes(hn::LoadU(d, twice), hn::IndicesFromVec(d, index));
  }
#endif
  return hn::GatherIndex(d, twice, index);
}

// One row of parameters per channel; all float32 `[dim]`.
struct Parameters {
  const float* mu;
  const float* sigma;
  const float* base;
  const float* width;
};

// From u to x, one rounded operation at a time.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Expand(V u, V sigma, V mu, V width, V base) {
  return hn::Add(hn::Mul(hn::Add(hn::Mul(u, sigma), mu), width), base);
}

template <class D, class VI>
HWY_INLINE hn::Vec<D> WithSign(D d, hn::Vec<D> size, VI nibble) {
  // Bit 3 of the anchor's nibble, moved to the top.
  const auto sign = hn::ShiftLeft<28>(hn::And(nibble, hn::Set(hn::RebindToSigned<D>(), 8)));
  return hn::Xor(size, hn::BitCast(d, sign));
}

// The size of the anchor: the nibble, or 15 - nibble where it is negative.
template <class DI, class VI>
HWY_INLINE VI AnchorSize(DI di, VI nibble) {
  const auto negative = hn::Gt(nibble, hn::Set(di, 7));
  return hn::And(hn::IfThenElse(negative, hn::Not(nibble), nibble), hn::Set(di, 7));
}

template <class D>
HWY_INLINE hn::Vec<D> AnchorValue(D d, const Tables& t, hn::Vec<hn::RebindToSigned<D>> nibble) {
  const hn::RebindToSigned<D> di;
  return WithSign(d, LookUp8(d, t.anchor_level.data(), AnchorSize(di, nibble)), nibble);
}

template <class D>
HWY_INLINE hn::Vec<D> FullValue(D d, const Tables& t, hn::Vec<hn::RebindToSigned<D>> nibble,
                                hn::Vec<hn::RebindToSigned<D>> residual) {
  const hn::RebindToSigned<D> di;
  const auto index = hn::Or(hn::ShiftLeft<4>(AnchorSize(di, nibble)), residual);
  return WithSign(d, hn::GatherIndex(d, t.level.data(), index), nibble);
}

// One row of codes: token j of the chunk and token j + C/2. `residual` holds codes in channel order, or is null.
template <class D, class T, bool kFull>
HWY_INLINE void DecodeVector(D d, const Tables& tables, const Parameters& p, const uint8_t* codes,
                             const uint8_t* residual, size_t c, float first_scale, float second_scale,
                             bool token_scale, T* first, T* second) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const auto low_bits = hn::Set(di, 15);
  const auto byte = hn::PromoteTo(di, hn::LoadU(du8, codes + c));
  const auto a = hn::And(byte, low_bits), b = hn::ShiftRight<4>(byte);
  hn::Vec<D> u, v;
  if constexpr (kFull) {
    const auto more = hn::PromoteTo(di, hn::LoadU(du8, residual + c));
    u = FullValue(d, tables, a, hn::And(more, low_bits));
    v = FullValue(d, tables, b, hn::ShiftRight<4>(more));
  } else {
    u = AnchorValue(d, tables, a);
    v = AnchorValue(d, tables, b);
  }
  const auto sigma = hn::LoadU(d, p.sigma + c), mu = hn::LoadU(d, p.mu + c);
  const auto width = hn::LoadU(d, p.width + c), base = hn::LoadU(d, p.base + c);
  u = Expand<D>(u, sigma, mu, width, base);
  v = Expand<D>(v, sigma, mu, width, base);
  if (token_scale) {
    u = hn::Mul(u, hn::Set(d, first_scale));
    v = hn::Mul(v, hn::Set(d, second_scale));
  }
  WriteValues(d, u, first + c);
  WriteValues(d, v, second + c);
}

// Residual codes in channel order, for heads with hot channels. Without the residual a channel that is not hot gets the
// code of its anchor's value alone: 3 above 0, else 0 above the anchor.
inline void JoinResidual(const Channels& channels, const uint8_t* codes, const uint8_t* hot, const uint8_t* rest,
                         size_t dim, uint8_t* to) {
  if (rest == nullptr) {
    const auto code = [](int nibble) { return nibble == 0 || nibble == 15 ? kBias + 3 : kBias; };
    for (size_t c = 0; c < dim; ++c) to[c] = static_cast<uint8_t>(code(codes[c] & 15) | code(codes[c] >> 4) << 4);
  } else {
    for (int32_t channel : channels.rest) to[channel] = *rest++;
  }
  for (int32_t channel : channels.hot) to[channel] = *hot++;
}

template <class D, class T, bool kFull>
void DecodeRows(D d, const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                const float* base, float* chunk_parameters, uint8_t* joined) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const Tables& tables = *tile.tables;
  const size_t lanes = hn::Lanes(d), dim = tile.dim, hot = tile.Hot();
  const int chunks = tile.Chunks(), half = tile.chunk / 2;
  const uint8_t* mus = anchor + 4 * dim;
  const uint8_t* sigmas = mus + chunks * dim;
  const uint8_t* codes = anchor + tile.HeaderBytes();
  const uint8_t* scales = codes - tile.tokens;
  const uint8_t* hot_codes = codes + static_cast<size_t>(tile.tokens) / 2 * dim;
  float* mu = chunk_parameters;
  float* sigma = mu + dim;
  const Parameters parameters{mu, sigma, base, base + dim};
  const auto next = [&](size_t c) { return c + lanes >= dim ? dim : std::min(c + lanes, dim - lanes); };
  for (int n = 0; n < chunks; ++n) {
    for (size_t c = 0; c < dim; c = next(c)) {
      const auto mu_code = hn::PromoteTo(di, hn::LoadU(du8, mus + n * dim + c));
      const auto sigma_code = hn::PromoteTo(di, hn::LoadU(du8, sigmas + n * dim + c));
      hn::StoreU(hn::GatherIndex(d, tables.fraction.data(), mu_code), d, mu + c);
      hn::StoreU(hn::GatherIndex(d, tables.sigma.data(), sigma_code), d, sigma + c);
    }
    for (int j = 0; j < half; ++j, codes += dim) {
      const int t = n * tile.chunk + j;
      T* first = static_cast<T*>(rows[t]);
      T* second = static_cast<T*>(rows[t + half]);
      float first_scale = 1, second_scale = 1;
      if (tile.token_scale) {
        first_scale = tables.token_scale[scales[t]];
        second_scale = tables.token_scale[scales[t + half]];
      }
      const uint8_t* more = residual;
      if (hot) {
        JoinResidual(*tile.channels, codes, hot_codes, residual, dim, joined);
        hot_codes += hot;
        more = joined;
      }
      if (residual) residual += dim - hot;
      for (size_t c = 0; c < dim; c = next(c)) {
        DecodeVector<D, T, kFull>(d, tables, parameters, codes, more, c, first_scale, second_scale,
                                  tile.token_scale, first, second);
      }
    }
  }
}

template <class D, class T>
void DecodeWith(D d, const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                Scratch& scratch) {
  const size_t dim = tile.dim;
  scratch.parameters.resize(4 * dim);
  scratch.codes.resize(dim);
  float* base = scratch.parameters.data();
  const hn::CappedTag<float, 1> single;
  const hn::Rebind<uint16_t, decltype(single)> du16;
  const hn::Rebind<hwy::float16_t, decltype(single)> dh;
  for (size_t i = 0; i < 2 * dim; ++i) {  // gamma_min, then gamma_scale; the bytes need not be aligned
    uint16_t bits;
    std::memcpy(&bits, anchor + 2 * i, 2);
    base[i] = hn::GetLane(hn::PromoteTo(single, hn::BitCast(dh, hn::Set(du16, bits))));
  }
  float* chunk_parameters = base + 2 * dim;
  if (residual || tile.Hot()) {
    DecodeRows<D, T, true>(d, tile, anchor, residual, rows, base, chunk_parameters, scratch.codes.data());
  } else {
    DecodeRows<D, T, false>(d, tile, anchor, residual, rows, base, chunk_parameters, scratch.codes.data());
  }
}

template <class T>
void DecodeTyped(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                 Scratch& scratch) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> single;
  if (static_cast<size_t>(tile.dim) >= hn::Lanes(d)) {
    DecodeWith<decltype(d), T>(d, tile, anchor, residual, rows, scratch);
  } else {
    DecodeWith<decltype(single), T>(single, tile, anchor, residual, rows, scratch);
  }
}

void DecodeAny(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
               Scratch& scratch) {
  switch (tile.dtype) {
    case Dtype::kBfloat16:
      return DecodeTyped<Bfloat16>(tile, anchor, residual, rows, scratch);
    case Dtype::kFloat16:
      return DecodeTyped<Float16>(tile, anchor, residual, rows, scratch);
    default:
      return DecodeTyped<float>(tile, anchor, residual, rows, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();

#endif  // include guard
