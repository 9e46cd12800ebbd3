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

// The value of an anchor's nibble (int32 lanes, 0..15) without its residual.
template <class D>
HWY_INLINE hn::Vec<D> AnchorValue(D d, const Tables& t, hn::Vec<hn::RebindToSigned<D>> nibble) {
  const float* table = t.anchor_level.data();
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  if constexpr (hn::MaxLanes(D()) >= 16) {
    return hn::TableLookupLanes(hn::LoadU(d, table), hn::IndicesFromVec(d, nibble));
  } else if constexpr (hn::MaxLanes(D()) == 8) {
    const hn::RebindToSigned<D> di;
    const auto index = hn::IndicesFromVec(d, hn::And(nibble, hn::Set(di, 7)));
    const auto low = hn::TableLookupLanes(hn::LoadU(d, table), index);
    const auto high = hn::TableLookupLanes(hn::LoadU(d, table + 8), index);
    return hn::IfThenElse(RebindMask(d, hn::Gt(nibble, hn::Set(di, 7))), high, low);
  }
#endif
  return hn::GatherIndex(d, table, nibble);
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

// One row of codes: token j of the chunk and token j + C/2. `residual` holds codes in channel order, or is null.
template <class D, class T, bool kFull>
HWY_INLINE void DecodeVector(D d, const Tables& tables, const Parameters& p, const uint8_t* codes,
                             const uint8_t* residual, size_t c, float first_scale, float second_scale,
                             bool token_scale, T* first, T* second) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const auto low_bits = hn::Set(di, 15);
  const auto byte = hn::PromoteTo(di, hn::LoadU(du8, codes + c));
  hn::Vec<D> u, v;
  if constexpr (kFull) {
    const auto more = hn::PromoteTo(di, hn::LoadU(du8, residual + c));
    const auto first_code = hn::Or(hn::ShiftLeft<4>(hn::And(byte, low_bits)), hn::And(more, low_bits));
    const auto second_code = hn::Or(hn::AndNot(low_bits, byte), hn::ShiftRight<4>(more));
    u = hn::GatherIndex(d, tables.level.data(), first_code);
    v = hn::GatherIndex(d, tables.level.data(), second_code);
  } else {
    u = AnchorValue(d, tables, hn::And(byte, low_bits));
    v = AnchorValue(d, tables, hn::ShiftRight<4>(byte));
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
