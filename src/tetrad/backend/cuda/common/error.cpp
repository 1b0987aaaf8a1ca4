// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/error.h"

#include "tetrad/backend/cuda/common/blas_error.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {

void fail_at(const SourcePlace& where, const char* library, const char* what) {
  throw Error(fmt::format("{}: {} ({}, {}:{})", library, what, where.function, where.file, where.line),
              ExitCode::failure);
}

void check(cudaError_t result, SourcePlace where) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // reported here: the next launch shall not find it again
  fail_at(where, "CUDA", cudaGetErrorString(result));
}

void check(cublasStatus_t result, SourcePlace where) {
  if (result != CUBLAS_STATUS_SUCCESS) fail_at(where, "cuBLASLt", cublasLtGetStatusString(result));
}

}  // namespace tetrad::cuda
