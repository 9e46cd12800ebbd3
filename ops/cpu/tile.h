// One tile, seen by the kernels: rows of values on one side, bytes on the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "channels.h"
#include "tables.h"

namespace lynx {

enum class Dtype : int { kBfloat16 = 0, kFloat16 = 1, kFloat32 = 2 };

inline size_t ItemSize(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

struct Tile {
  const Tables* tables;
  const Channels* channels;
  Dtype dtype;
  int tokens;  // a multiple of 8
  int dim;
  int chunk;
  bool token_scale;
  bool mean;          // encoder policy: the mean instead of the midrange
  bool has_residual;  // false for codecs whose residual is dropped

  int Chunks() const { return (tokens + chunk - 1) / chunk; }  // the last may be short
  size_t Groups() const { return static_cast<size_t>(tokens) / kGroup; }
  size_t HeaderBytes() const {
    return 4 * static_cast<size_t>(dim) + 2 * static_cast<size_t>(Chunks()) * dim + (token_scale ? tokens : 0);
  }
  size_t AnchorBytes() const { return HeaderBytes() + Groups() * channels->bits; }
  size_t ResidualBytes() const { return has_residual ? Groups() * (kCodeBits * dim - channels->bits) : 0; }
};

// Memory that a thread reuses from tile to tile.
struct Scratch {
  std::vector<float> values;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> planes;
  std::vector<float> parameters;
};

// rows[t]: `dim` consecutive values of token t. next: as many rows that will be encoded soon, or null. False: the tile
// must travel raw; what was written is to be dropped.
bool EncodeTile(const Tile& tile, const void* const* rows, const void* const* next, uint8_t* anchor, uint8_t* residual,
                Scratch& scratch);

// `residual` is null where the anchor is decoded alone. `stream`: past the caches, where the rows allow it.
void DecodeTile(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows,
                bool stream, Scratch& scratch);

// Instruction sets that this build holds and this machine has, best first, by Highway's names.
std::vector<const char*> Targets();
const char* Target();
// Restrict to one of Targets(); for tests. False: there is no such target.
bool UseTarget(const char* name);

}  // namespace lynx
