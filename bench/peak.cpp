// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

Peak measure_peak(Backend& backend) {
  const std::int64_t edge = large_edge(backend);
  ReferenceProduct library(backend, edge, edge, edge);
  Peak peak;
  const auto measure = [&](const char* name, const std::function<void()>& product) {
    const double tflops = library.flop() / fastest_seconds(backend, product) / 1e12;
    if (tflops > peak.tflops) peak = {tflops, fmt::format("{} of {}³, measured", name, edge)};
  };
  measure(library.name(), [&] { library(); });
  if (backend.name() != "cpu") return peak;
  // On a processor with instructions for BF16 our product is faster than the library's in f32.
  const Tensor a = random_tensor(backend, DType::bf16, edge, edge, 1);
  const Tensor b = random_tensor(backend, DType::bf16, edge, edge, 2);
  Tensor out = backend.make_tensor(DType::bf16, edge, edge);
  measure("BF16 product", [&] { backend.gemm(a.const_view(), b.const_view(), out.view()); });
  return peak;
}

}  // namespace tetrad::bench
