// How a cache packs the values of one head in a block, if not as rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lynx {

class Packing {
 public:
  // place[size]: position of (token, channel), tokens outside. Throws std::invalid_argument unless it is a permutation
  // that fits 32 bits.
  Packing(const int64_t* place, int64_t size);

  // Values [first, first + count) in the order of tokens and channels. `part`: the head's values in the block. Both
  // streams of values are of `item` bytes, 2 or 4.
  void Read(const void* part, int64_t first, int64_t count, size_t item, void* to) const;
  void Write(const void* from, int64_t first, int64_t count, size_t item, void* part) const;
  // All values of the block, faster.
  void WriteAll(const void* from, size_t item, void* part) const;

  const int64_t size;
  bool identity = true;  // rows after all

 private:
  // to[i] of a block is from[place_[i]] when it is read, from[source_[i]] when it is written.
  std::vector<int32_t> place_, source_;
  std::vector<int32_t> pair_place_, pair_source_;  // the same of pairs of values, if these stay together; else empty
};

// to[i] = from[index[i]] for i below `count`, with values of `item` bytes, 2 or 4. With 2, from[index[i] ^ 1] must be
// there as well. `stream`: past the caches, where `to` allows it.
void Permute(const int32_t* index, size_t count, size_t item, const void* from, void* to, bool stream);

}  // namespace lynx
