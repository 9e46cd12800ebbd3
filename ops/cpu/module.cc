// Python's view: lynx_ascend.codec._cpu. Addresses come as integers; lynx_ascend/codec/cpu.py owns the tensors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "segment.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
T* Pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

lynx::Coding MakeCoding(std::shared_ptr<lynx::Tables> tables, const std::vector<std::vector<uint8_t>>& widths, int page,
                        int chunk, bool token_scale, bool mean, bool has_residual) {
  const int dim = widths.empty() ? 0 : static_cast<int>(widths[0].size());
  lynx::Coding coding{std::move(tables), {}, dim, page, chunk, token_scale, mean, has_residual};
  for (const auto& head : widths) {
    if (head.size() != widths[0].size()) throw std::invalid_argument("heads have the same number of channels");
    coding.heads.emplace_back(head);
  }
  return coding;
}

lynx::Pages MakePages(uintptr_t data, int dtype, uintptr_t table, int64_t table_size, int64_t blocks,
                      int64_t block_size, int64_t block_stride, int64_t head_stride, int64_t token_stride,
                      int64_t channel_stride, std::shared_ptr<lynx::Packing> packing) {
  if (dtype < 0 || dtype > 2) throw std::invalid_argument("unknown dtype");
  return {Pointer<uint8_t>(data), static_cast<lynx::Dtype>(dtype), Pointer<const int64_t>(table), table_size, blocks,
          block_size, block_stride, head_stride, token_stride, channel_stride, std::move(packing)};
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.doc() = "The codec on a CPU, by the widest vectors that this machine has.";
  m.def("targets", [] {
    std::vector<std::string> names;
    for (const char* name : lynx::Targets()) names.emplace_back(name);
    return names;
  });
  m.def("target", [] { return std::string(lynx::Target()); });
  m.def("use_target", [](const std::string& name) { return lynx::UseTarget(name.c_str()); }, "name"_a);

  nb::class_<lynx::Tables>(m, "Tables")
      .def(nb::init<double, const std::vector<float>&, const std::vector<float>&, const std::vector<float>&,
                    const std::vector<float>&, const std::vector<float>&, const std::vector<float>&>(),
           "alpha"_a, "full"_a, "anchor"_a, "thresholds"_a, "sigmas"_a, "fractions"_a, "token_scales"_a)
      .def_ro("fitted", &lynx::Tables::fitted)
      .def_ro("doubt", &lynx::Tables::doubt);
  nb::class_<lynx::Coding>(m, "Coding")
      .def(nb::new_(&MakeCoding), "tables"_a, "widths"_a, "page"_a, "chunk"_a, "token_scale"_a,
           "mean"_a, "has_residual"_a);
  nb::class_<lynx::Packing>(m, "Packing")
      .def(nb::new_([](uintptr_t place, int64_t size) {
             return std::make_shared<lynx::Packing>(Pointer<const int64_t>(place), size);
           }),
           "place"_a, "size"_a);
  nb::class_<lynx::Pages>(m, "Pages")
      .def(nb::new_(&MakePages), "data"_a, "dtype"_a, "table"_a, "table_size"_a, "blocks"_a, "block_size"_a,
           "block_stride"_a, "head_stride"_a, "token_stride"_a, "channel_stride"_a, "packing"_a.none());

  m.def(
      "encode",
      [](const lynx::Coding& coding, const lynx::Pages& pages, int64_t start, int64_t tokens, int64_t coded,
         int64_t sinks, uintptr_t anchor, size_t anchor_size, uintptr_t residual, size_t residual_size, int threads) {
        return lynx::EncodeSegment(coding, pages, {start, tokens, coded, sinks}, Pointer<uint8_t>(anchor),
                                   anchor_size, Pointer<uint8_t>(residual), residual_size, threads);
      },
      "coding"_a, "pages"_a, "start"_a, "tokens"_a, "coded"_a, "sinks"_a, "anchor"_a, "anchor_size"_a,
      "residual"_a, "residual_size"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "decode",
      [](const lynx::Coding& coding, const lynx::Pages& pages, int64_t start, int64_t tokens, int64_t coded,
         int64_t sinks, int64_t skip, uintptr_t anchor, size_t anchor_size, uintptr_t residual, size_t residual_size,
         bool full, int threads) {
        static const uint8_t none = 0;  // a residual of no bytes has no address
        const uint8_t* rest = residual ? Pointer<const uint8_t>(residual) : &none;
        return lynx::DecodeSegment(coding, pages, {start, tokens, coded, sinks}, skip, Pointer<const uint8_t>(anchor),
                                   anchor_size, full ? rest : nullptr, residual_size, threads);
      },
      "coding"_a, "pages"_a, "start"_a, "tokens"_a, "coded"_a, "sinks"_a, "skip"_a, "anchor"_a, "anchor_size"_a,
      "residual"_a, "residual_size"_a, "full"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
}
