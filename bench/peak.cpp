// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

PeakProduct::PeakProduct(Backend& backend)
    : backend_(backend),
      edge_(large_edge(backend)),
      library_(backend, edge_, edge_, edge_),
      seconds_(fastest_seconds(backend, [&] { library_(); })) {
  if (backend.name() != "cpu") return;
  // On a processor with instructions for BF16 our product is faster than the library's in f32.
  a_ = random_tensor(backend, DType::bf16, edge_, edge_, 1);
  b_ = random_tensor(backend, DType::bf16, edge_, edge_, 2);
  out_ = backend.make_tensor(DType::bf16, edge_, edge_);
  const double seconds =
      fastest_seconds(backend, [&] { backend_.gemm(a_.const_view(), b_.const_view(), out_.view()); });
  is_own_ = seconds < seconds_;
  seconds_ = std::min(seconds, seconds_);
}

void PeakProduct::operator()() {
  if (is_own_)
    backend_.gemm(a_.const_view(), b_.const_view(), out_.view());
  else
    library_();
}

std::string PeakProduct::name() const { return is_own_ ? "BF16 product" : library_.name(); }

Peak measure_peak(Backend& backend) {
  const PeakProduct product(backend);
  return {product.flop() / product.seconds() / 1e12,
          fmt::format("{} of {}³, measured", product.name(), product.edge())};
}

}  // namespace tetrad::bench
