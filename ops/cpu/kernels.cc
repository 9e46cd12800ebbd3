// The kernels for every instruction set, and the choice among them at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "decode-inl.h"
#include "encode-inl.h"
#include "permute-inl.h"

#if HWY_TARGET == HWY_SCALAR
// The compiler's baseline on x86, which Usable() refuses: nothing to compile for it.
HWY_BEFORE_NAMESPACE();
namespace lynx {
namespace HWY_NAMESPACE {
bool EncodeAny(const Tile&, const void* const*, const void* const*, uint8_t*, uint8_t*, Scratch&) { return false; }
void DecodeAny(const Tile&, const uint8_t*, const uint8_t*, void* const*, bool, Scratch&) {}
void PermuteAny(const int32_t*, size_t, size_t, const void*, void*, bool) {}
}  // namespace HWY_NAMESPACE
}  // namespace lynx
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <cstring>

#include "packing.h"

namespace lynx {

HWY_EXPORT(EncodeAny);
HWY_EXPORT(DecodeAny);
HWY_EXPORT(PermuteAny);

bool EncodeTile(const Tile& tile, const void* const* rows, const void* const* next, uint8_t* anchor, uint8_t* residual,
                Scratch& scratch) {
  return HWY_DYNAMIC_DISPATCH(EncodeAny)(tile, rows, next, anchor, residual, scratch);
}

void DecodeTile(const Tile& tile, const uint8_t* anchor, const uint8_t* residual, void* const* rows, bool stream,
                Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeAny)(tile, anchor, residual, rows, stream, scratch);
}

void Permute(const int32_t* index, size_t count, size_t item, const void* from, void* to, bool stream) {
  HWY_DYNAMIC_DISPATCH(PermuteAny)(index, count, item, from, to, stream);
}

namespace {

// Sets without float16 conversions emulate them and round otherwise: the reference is there for such machines.
constexpr int64_t kExact = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;

int64_t Usable() {
  hwy::SetSupportedTargetsForTest(0);
  return hwy::SupportedTargets() & HWY_TARGETS & kExact;
}

}  // namespace

std::vector<const char*> Targets() {
  static const int64_t usable = Usable();
  std::vector<const char*> names;
  for (int64_t left = usable; left != 0; left &= left - 1) names.push_back(hwy::TargetName(left & -left));
  return names;
}

const char* Target() {
  const int64_t chosen = hwy::SupportedTargets() & HWY_TARGETS;  // the machine may know sets that are not built
  return hwy::TargetName(chosen & -chosen);
}

bool UseTarget(const char* name) {
  const int64_t usable = Usable();
  for (int64_t left = usable; left != 0; left &= left - 1) {
    if (std::strcmp(name, hwy::TargetName(left & -left)) == 0) {
      hwy::SetSupportedTargetsForTest(left & -left);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      return true;
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return false;
}

}  // namespace lynx
#endif  // HWY_ONCE
