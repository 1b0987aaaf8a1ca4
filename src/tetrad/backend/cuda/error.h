#pragma once
// Every call into CUDA and its libraries is checked, in every build type.

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <source_location>

namespace tetrad::cuda {

/// Throws Error that names the call's place.
void check(cudaError_t result, std::source_location where = std::source_location::current());
void check(cublasStatus_t result, std::source_location where = std::source_location::current());

/// To be called after a kernel launch, which returns nothing itself.
inline void check_launch(std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), where);
}

}  // namespace tetrad::cuda
