#include "tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace lynx {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();

template <size_t N>
void Fill(std::array<float, N>& to, const std::vector<float>& from) {
  if (from.size() != N) throw std::invalid_argument("a table has the wrong length");
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

Tables::Tables(double alpha, const std::vector<float>& full, const std::vector<float>& anchor,
               const std::vector<float>& thresholds, const std::vector<float>& sigmas,
               const std::vector<float>& fractions, const std::vector<float>& token_scales) {
  if (thresholds.size() != kLevels) throw std::invalid_argument("a table has the wrong length");
  Fill(level, full);
  Fill(anchor_level, anchor);
  for (int i = 0; i < 16; ++i) nibble_level[i] = anchor_level[256 * 4 + 16 * i];
  Fill(sigma, sigmas);
  Fill(fraction, fractions);
  Fill(token_scale, token_scales);
  BuildCells(thresholds);
  FitCurve(alpha);
  BuildSigmaCells();
  BuildBytes();
}

void Tables::BuildCells(const std::vector<float>& thresholds) {
  // A power of two, so that u * cells is exact; enough of them that none holds two thresholds.
  int count = 128;
  const auto cell = [&](float u) { return static_cast<int>(u * static_cast<float>(count)); };
  const auto crowded = [&] {
    for (int k = 1; k < kLevels; ++k) {
      if (cell(thresholds[k]) == cell(thresholds[k - 1])) return true;
    }
    return false;
  };
  while (crowded()) count *= 2;
  cells = static_cast<float>(count);
  below.assign(count + 1, 0);
  inside.assign(count + 1, kNever);
  for (float bound : thresholds) inside[cell(bound)] = bound;
  for (int i = 1; i <= count; ++i) below[i] = below[i - 1] + (inside[i - 1] != kNever ? 1 : 0);
}

void Tables::FitCurve(double alpha) {
  // Chebyshev interpolation in double, turned into a polynomial in x = 2u - 1.
  constexpr int n = kDegree + 1;
  const auto magnitude = [&](double u) { return kLevels * std::log1p(alpha * u) / std::log1p(alpha) + kBias; };
  double chebyshev[n] = {};
  for (int i = 0; i < n; ++i) {
    const double angle = M_PI * (i + 0.5) / n;
    const double y = magnitude(0.5 * (std::cos(angle) + 1));
    for (int k = 0; k < n; ++k) chebyshev[k] += (k ? 2.0 : 1.0) / n * y * std::cos(k * angle);
  }
  double power[n] = {}, before[n] = {1}, now[n] = {0, 1};
  for (int k = 0; k < n; ++k) {
    const double* t = k ? now : before;
    for (int i = 0; i < n; ++i) power[i] += chebyshev[k] * t[i];
    if (k) {
      double next[n];
      for (int i = 0; i < n; ++i) next[i] = (i ? 2 * now[i - 1] : 0) - before[i];
      std::copy(now, now + n, before);
      std::copy(next, next + n, now);
    }
  }
  for (int i = 0; i < n; ++i) curve[i] = static_cast<float>(power[n - 1 - i]);

  double error = 0;
  constexpr int kProbes = 1 << 14;
  for (int i = 0; i <= kProbes; ++i) {
    const float u = static_cast<float>(i) / kProbes;
    const float x = u * 2.0f - 1.0f;
    float y = curve[0];
    for (int k = 1; k < n; ++k) y = std::fma(y, x, curve[k]);
    error = std::max(error, std::abs(y - magnitude(u)));
  }
  // Between the probes the error is hardly larger: it is smooth but for the rounding, which the constant covers.
  doubt = static_cast<float>(2 * error + 1e-4);
  slope = static_cast<float>(kLevels * alpha / std::log1p(alpha));
  fitted = doubt < 4e-3f;
}

void Tables::BuildSigmaCells() {
  // Cells of 1/64 of an octave; neighbouring sigmas are at least 0.0219 apart, relative to their octave's start.
  for (int32_t i = 0; i < kSigmaCells; ++i) {
    const uint32_t bits = static_cast<uint32_t>(kSigmaFirst + i) << 17;
    const uint32_t end_bits = bits + (1u << 17);
    float low, high;
    std::memcpy(&low, &bits, 4);
    std::memcpy(&high, &end_bits, 4);
    int32_t code = 255;
    while (code > 0 && sigma[code] < low) --code;
    sigma_code[i] = code;
    sigma_inside[i] = sigma[code] < high ? sigma[code] : kNever;
  }
}

void Tables::BuildBytes() {
  const auto put = [](float value, uint8_t* table, int size) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    for (int k = 0; k < 4; ++k) table[k * size] = static_cast<uint8_t>(bits >> 8 * k);
  };
  for (int code = 0; code < 128; ++code) put(level[code], &level_bytes[code], 128);
  middle_bytes.fill(0);
  for (int width = 1; width <= 8; ++width) {
    const int unknown = (1 << (8 - width)) - 1;
    for (int code = 0; code < 128; code += unknown + 1) {
      const int first = std::max(code - kBias, 0), last = std::min((code | unknown) - kBias, kLevels);
      if (first <= last) put(anchor_level[256 * width + code], &middle_bytes[first + last], 256);
    }
  }
  for (int i = 0; i < 64; ++i) byte_order[i] = static_cast<uint8_t>(i % 16 / 4 * 16 + i / 16 * 4 + i % 4);
}

}  // namespace lynx
