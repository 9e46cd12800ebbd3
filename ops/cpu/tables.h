// The constants of one alpha. Their float32 values come from the reference, so that both hold the same bits; what is
// derived from them here only finds the same answers faster.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lynx {

constexpr int kLevels = 112;
constexpr int kBias = 7;  // a code byte is magnitude + 7

class Tables {
 public:
  // full[256]: value of every code byte. anchor[9 * 256]: at 256 * width + code, of a code of which the `width` highest
  // bits are known, the others being 0. thresholds[112]: ascending bounds between magnitudes. sigmas, fractions,
  // token_scales: 256 values each. Throws std::invalid_argument on other lengths.
  Tables(double alpha, const std::vector<float>& full, const std::vector<float>& anchor,
         const std::vector<float>& thresholds, const std::vector<float>& sigmas, const std::vector<float>& fractions,
         const std::vector<float>& token_scales);

  // As given; and the values of the 16 codes of width 4.
  alignas(64) std::array<float, 256> level;
  alignas(64) std::array<float, 9 * 256> anchor_level;
  alignas(64) std::array<float, 16> nibble_level;
  // The same, byte by byte (the lowest first), for vectors that look up bytes: of the 128 codes that are not negative;
  // and the value in the middle of two magnitudes, at their sum.
  alignas(64) std::array<uint8_t, 4 * 128> level_bytes;
  alignas(64) std::array<uint8_t, 4 * 256> middle_bytes;
  alignas(64) std::array<uint8_t, 64> byte_order;  // see levels-inl.h
  alignas(64) std::array<float, 256> sigma;
  alignas(64) std::array<float, 256> fraction;
  alignas(64) std::array<float, 256> token_scale;

  // The magnitude of u in [0, 1] is below[cell] + (u > inside[cell]) with cell = int(u * cells).
  float cells;
  std::vector<int32_t> below;
  std::vector<float> inside;

  // Horner coefficients, highest first, of magnitude + 7 over 2|u| - 1. Farther than `doubt` + `slope` * (error of u)
  // from the middle between integers its nearest integer is right; nearer, or if not `fitted`, the cells decide.
  static constexpr int kDegree = 8;
  std::array<float, kDegree + 1> curve;
  float doubt;
  float slope;
  bool fitted;

  // The largest sigma code whose scale is at least `reach`: with cell = clamp(bits(reach) >> 17, first, first + 512)
  // - first, sigma_code[cell] - (reach > sigma_inside[cell]).
  static constexpr int32_t kSigmaFirst = (127 - 8) << 6;
  static constexpr int32_t kSigmaCells = 513;
  std::array<int32_t, kSigmaCells> sigma_code;
  std::array<float, kSigmaCells> sigma_inside;

 private:
  void BuildCells(const std::vector<float>& thresholds);
  void FitCurve(double alpha);
  void BuildSigmaCells();
  void BuildBytes();
};

}  // namespace lynx
