// Decoder of one tile; compiled once per instruction set (Highway's foreach_target).
#if defined(LYNX_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LYNX_DECODE_INL_H_
#undef LYNX_DECODE_INL_H_
#else
#define LYNX_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "bitplanes-inl.h"
#include "hwy/cache_control.h"
#include "levels-inl.h"
#include "values-inl.h"

#if HWY_TARGET != HWY_SCALAR  // never chosen: see kernels.cc
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {

// How the codes of a tile are known.
enum class Known {
  kNibbles,  // the upper four bits of all, two in a byte (see ReadNibbles)
  kSome,     // as many bits as each channel's width
  kAll,
};

// The value of an anchor's nibble (int32 lanes, 0..15) without its residual.
template <class D>
HWY_INLINE hn::Vec<D> NibbleValue(D d, const Tables& t, hn::Vec<hn::RebindToSigned<D>> nibble) {
  const float* table = t.nibble_level.data();
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

// What the values of a vector of channels in a chunk have in common.
template <class D, Known kKnown>
class Decoder {
  using DI = hn::RebindToSigned<D>;

 public:
  HWY_INLINE Decoder(D d, const Tile& tile, const Parameters& p, size_t c)
      : tables_(*tile.tables),
        sigma_(hn::LoadU(d, p.sigma + c)),
        mu_(hn::LoadU(d, p.mu + c)),
        width_(hn::LoadU(d, p.width + c)),
        base_(hn::LoadU(d, p.base + c)) {
    if constexpr (kKnown == Known::kSome) table_at_ = hn::LoadU(DI(), tile.channels->table_at.data() + c);
  }

  // Token t of a group, whose codes ReadCodes or ReadNibbles left at `codes` for these channels.
  HWY_INLINE hn::Vec<D> operator()(D d, const uint8_t* codes, size_t stride, int t, const float* scales) const {
    const DI di;
    const hn::Rebind<uint8_t, D> du8;
    const uint8_t* from = codes + (kKnown == Known::kNibbles ? t % 4 : t) * stride;
    auto code = hn::PromoteTo(di, hn::LoadU(du8, from));
    hn::Vec<D> u;
    if constexpr (kKnown == Known::kNibbles) {
      u = NibbleValue(d, tables_, t < 4 ? hn::And(code, hn::Set(di, 15)) : hn::ShiftRight<4>(code));
    } else if constexpr (kKnown == Known::kSome) {
      u = hn::GatherIndex(d, tables_.anchor_level.data(), hn::Add(code, table_at_));
    } else {
      u = hn::GatherIndex(d, tables_.level.data(), code);
    }
    return FromLevel(d, u, t, scales);
  }

  // x of token t from its u.
  HWY_INLINE hn::Vec<D> FromLevel(D d, hn::Vec<D> u, int t, const float* scales) const {
    u = Expand<D>(u, sigma_, mu_, width_, base_);
    return scales == nullptr ? u : hn::Mul(u, hn::Set(d, scales[t]));
  }

 private:
  const Tables& tables_;
  hn::Vec<D> sigma_, mu_, width_, base_;
  hn::Vec<DI> table_at_;
};

// The values of eight tokens. `scales`: of the tokens, or null.
template <class D, class T, Known kKnown>
HWY_INLINE void DecodeGroup(D d, const Tile& tile, const Parameters& p, const uint8_t* codes, const float* scales,
                            bool stream, void* const* rows) {
  const size_t lanes = hn::Lanes(d), dim = tile.dim, stride = CodeStride(dim);
  size_t c = 0;
#if LYNX_BYTE_TABLES
  if constexpr (hn::MaxLanes(D()) == 16 && kKnown != Known::kNibbles) {
    const ByteLevels<kKnown == Known::kAll> levels(*tile.tables);
    for (; c + 64 <= dim; c += 64) {
      const Decoder<D, kKnown> of[4] = {
          {d, tile, p, c}, {d, tile, p, c + 16}, {d, tile, p, c + 32}, {d, tile, p, c + 48}};
      for (int t = 0; t < kGroup; ++t) {
        hn::Vec<D> x[4];
        levels(codes + t * stride + c, tile.channels->unknown.data() + c, x);
        for (int i = 0; i < 4; ++i) x[i] = of[i].FromLevel(d, x[i], t, scales);
        WritePair(d, x[0], x[1], stream, static_cast<T*>(rows[t]) + c);
        WritePair(d, x[2], x[3], stream, static_cast<T*>(rows[t]) + c + 32);
      }
    }
  }
#endif
  for (; c + 2 * lanes <= dim; c += 2 * lanes) {
    const Decoder<D, kKnown> first(d, tile, p, c), second(d, tile, p, c + lanes);
    for (int t = 0; t < kGroup; ++t) {
      const auto low = first(d, codes + c, stride, t, scales);
      const auto high = second(d, codes + c + lanes, stride, t, scales);
      WritePair(d, low, high, stream, static_cast<T*>(rows[t]) + c);
    }
  }
  while (c < dim) {
    c = std::min(c, dim - lanes);
    const Decoder<D, kKnown> one(d, tile, p, c);
    for (int t = 0; t < kGroup; ++t) {
      WriteValues(d, one(d, codes + c, stride, t, scales), static_cast<T*>(rows[t]) + c);
    }
    c += lanes;
  }
}

template <class D, class T, Known kKnown>
void DecodeRows(D d, const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                const float* base, float* chunk_parameters, bool stream, Scratch& scratch) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const Tables& tables = *tile.tables;
  const Channels& channels = *tile.channels;
  const size_t lanes = hn::Lanes(d), dim = tile.dim;
  const int chunks = tile.Chunks();
  const uint8_t* mus = anchor + 4 * dim;
  const uint8_t* sigmas = mus + chunks * dim;
  const uint8_t* front = anchor + tile.HeaderBytes();
  const uint8_t* token_codes = front - tile.tokens;
  const uint8_t* const front_end = anchor + tile.AnchorBytes();
  const uint8_t* const rest_end = residual == nullptr ? nullptr : residual + tile.ResidualBytes();
  float* mu = chunk_parameters;
  float* sigma = mu + dim;
  const Parameters parameters{mu, sigma, base, base + dim};
  uint8_t* const codes = scratch.codes.data();
  for (int t = 0; t < tile.tokens; t += kGroup, front += channels.bits) {
    if (t % tile.chunk == 0) {
      const size_t n = static_cast<size_t>(t) / tile.chunk;
      for (size_t c = 0; c < dim; c = NextStart(c, lanes, dim)) {
        const auto mu_code = hn::PromoteTo(di, hn::LoadU(du8, mus + n * dim + c));
        const auto sigma_code = hn::PromoteTo(di, hn::LoadU(du8, sigmas + n * dim + c));
        hn::StoreU(hn::GatherIndex(d, tables.fraction.data(), mu_code), d, mu + c);
        hn::StoreU(hn::GatherIndex(d, tables.sigma.data(), sigma_code), d, sigma + c);
      }
    }
    const uint8_t* planes[kCodeBits];
    JoinRows(channels, {front, front_end}, {residual, rest_end}, scratch.planes.data(), planes);
    if constexpr (kKnown == Known::kNibbles) {
      ReadNibbles(dim, planes, codes);
    } else {
      ReadCodes(dim, planes, codes);
    }
    if (residual != nullptr) residual += kCodeBits * dim - channels.bits;
    float scales[kGroup];
    if (tile.token_scale) {
      for (int i = 0; i < kGroup; ++i) scales[i] = tables.token_scale[token_codes[t + i]];
    }
    DecodeGroup<D, T, kKnown>(d, tile, parameters, codes, tile.token_scale ? scales : nullptr, stream, rows + t);
  }
}

// Whether whole lines of memory are written at once, so that they need not be read first.
template <class D, class T>
bool Streams(D d, const Tile& tile, void* const* rows) {
  const size_t pair = 2 * hn::Lanes(d) * sizeof(T);
  if (pair % kLine || tile.dim * sizeof(T) % pair) return false;
  return std::all_of(rows, rows + tile.tokens, [](void* row) { return reinterpret_cast<uintptr_t>(row) % kLine == 0; });
}

template <class D, class T>
void DecodeWith(D d, const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                bool stream, Scratch& scratch) {
  const size_t dim = tile.dim;
  scratch.parameters.resize(4 * dim);
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
  scratch.codes.resize(kGroup * CodeStride(dim));
  scratch.planes.resize(PlaneScratch(dim));
  if (residual == nullptr) std::fill(scratch.planes.begin(), scratch.planes.end(), uint8_t{0});  // unknown rows
  stream = stream && Streams<D, T>(d, tile, rows);
  const auto decode = residual != nullptr       ? DecodeRows<D, T, Known::kAll>
                      : tile.channels->plain ? DecodeRows<D, T, Known::kNibbles>
                                             : DecodeRows<D, T, Known::kSome>;
  decode(d, tile, anchor, residual, rows, base, chunk_parameters, stream, scratch);
  if (stream) hwy::FlushStream();
}

template <class T>
void DecodeTyped(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                 bool stream, Scratch& scratch) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> single;
  if (static_cast<size_t>(tile.dim) >= hn::Lanes(d)) {
    DecodeWith<decltype(d), T>(d, tile, anchor, residual, rows, stream, scratch);
  } else {
    DecodeWith<decltype(single), T>(single, tile, anchor, residual, rows, stream, scratch);
  }
}

void DecodeAny(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
               bool stream, Scratch& scratch) {
  switch (tile.dtype) {
    case Dtype::kBfloat16:
      return DecodeTyped<Bfloat16>(tile, anchor, residual, rows, stream, scratch);
    case Dtype::kFloat16:
      return DecodeTyped<Float16>(tile, anchor, residual, rows, stream, scratch);
    default:
      return DecodeTyped<float>(tile, anchor, residual, rows, stream, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
