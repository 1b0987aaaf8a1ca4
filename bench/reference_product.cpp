// SPDX-License-Identifier: Apache-2.0
#ifdef TETRAD_OPENBLAS
#include <cblas.h>
#endif

#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

ReferenceProduct::ReferenceProduct(Backend& backend, std::int64_t m, std::int64_t n, std::int64_t k)
    : backend_(backend),
      m_(m),
      n_(n),
      k_(k),
      on_cpu_(backend.name() == "cpu"),
      a_(random_tensor(backend, on_cpu_ ? DType::f32 : DType::bf16, m, k, 1)),
      b_(random_tensor(backend, on_cpu_ ? DType::f32 : DType::bf16, n, k, 2)),
      out_(backend.make_tensor(on_cpu_ ? DType::f32 : DType::bf16, m, n)) {}

void ReferenceProduct::operator()() {
#ifdef TETRAD_OPENBLAS
  if (on_cpu_) return multiply_with_openblas();
#endif
  backend_.gemm(a_.const_view(), b_.const_view(), out_.view());
}

const char* ReferenceProduct::name() const {
  if (!on_cpu_) return "BF16 product";
#ifdef TETRAD_OPENBLAS
  return "OpenBLAS SGEMM";
#else
  return "our f32 product (no OpenBLAS in this build)";
#endif
}

#ifdef TETRAD_OPENBLAS
void ReferenceProduct::multiply_with_openblas() {
  const auto blas_int = [](std::int64_t value) { return static_cast<blasint>(value); };
  openblas_set_num_threads(backend_.threads().count());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(m_), blas_int(n_), blas_int(k_), 1.0f,
              a_.f32(), blas_int(k_), b_.f32(), blas_int(k_), 0.0f, out_.f32(), blas_int(n_));
}
#endif

}  // namespace tetrad::bench
