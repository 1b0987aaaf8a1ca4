#include "tetrad/backend/cuda/error.h"

#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

[[noreturn]] void fail_at(const std::source_location& where, std::string_view library, const char* what) {
  throw Error(fmt::format("{}: {} ({}, {}:{})", library, what, where.function_name(), where.file_name(),
                          where.line()),
              ExitCode::failure);
}

}  // namespace

void check(cudaError_t result, std::source_location where) {
  if (result != cudaSuccess) fail_at(where, "CUDA", cudaGetErrorString(result));
}

void check(cublasStatus_t result, std::source_location where) {
  if (result != CUBLAS_STATUS_SUCCESS) fail_at(where, "cuBLASLt", cublasLtGetStatusString(result));
}

}  // namespace tetrad::cuda
