#include "packing.h"

#include <cstring>
#include <limits>
#include <stdexcept>

namespace lynx {
namespace {

std::vector<int32_t> Pairs(const std::vector<int32_t>& index) {
  std::vector<int32_t> pairs;
  for (size_t i = 0; i + 1 < index.size(); i += 2) {
    if (index[i] % 2 || index[i + 1] != index[i] + 1) return {};
    pairs.push_back(index[i] / 2);
  }
  return pairs;
}

template <class T>
void ReadOneByOne(const int32_t* place, int64_t count, const void* part, void* to) {
  for (int64_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = static_cast<const T*>(part)[place[i]];
}

template <class T>
void WriteOneByOne(const int32_t* place, int64_t count, const void* from, void* part) {
  T value;  // a received exact row need not be aligned
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(&value, static_cast<const uint8_t*>(from) + i * sizeof(T), sizeof(T));
    static_cast<T*>(part)[place[i]] = value;
  }
}

}  // namespace

Packing::Packing(const int64_t* place, int64_t count) : size(count) {
  if (size < 1 || size > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument("a block holds at least one value and fewer than 2^31");
  }
  place_.resize(size);
  source_.assign(size, -1);
  for (int64_t i = 0; i < size; ++i) {
    if (place[i] < 0 || place[i] >= size) {
      throw std::invalid_argument("a packed value has its place outside its block");
    }
    if (source_[place[i]] >= 0) throw std::invalid_argument("two packed values have the same place");
    place_[i] = static_cast<int32_t>(place[i]);
    source_[place[i]] = static_cast<int32_t>(i);
    identity = identity && place[i] == i;
  }
  if (size % 2) return;
  pair_place_ = Pairs(place_);
  pair_source_ = Pairs(source_);
}

void Packing::Read(const void* part, int64_t first, int64_t count, size_t item, void* to) const {
  if (item == 2 && !pair_place_.empty() && first % 2 == 0 && count % 2 == 0) {
    Permute(pair_place_.data() + first / 2, count / 2, 4, part, to, false);
  } else if (item == 2 && size % 2) {
    ReadOneByOne<uint16_t>(place_.data() + first, count, part, to);
  } else {
    Permute(place_.data() + first, count, item, part, to, false);
  }
}

void Packing::Write(const void* from, int64_t first, int64_t count, size_t item, void* part) const {
  if (item == 2) {
    WriteOneByOne<uint16_t>(place_.data() + first, count, from, part);
  } else {
    WriteOneByOne<uint32_t>(place_.data() + first, count, from, part);
  }
}

void Packing::WriteAll(const void* from, size_t item, void* part) const {
  if (item == 2 && !pair_source_.empty()) {
    Permute(pair_source_.data(), size / 2, 4, from, part, true);
  } else if (item == 2 && size % 2) {
    Write(from, 0, size, item, part);
  } else {
    Permute(source_.data(), size, item, from, part, true);
  }
}

}  // namespace lynx
