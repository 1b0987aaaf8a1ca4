// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every call into CUDA is checked, in every build type; blas_error.h does it for cuBLASLt, whose headers are
// many times larger.

#include <cuda_runtime.h>

namespace tetrad::cuda {

/// A place in the source. (std::source_location needs a newer clang than clang-tidy is built on in
/// Debian 12.)
struct SourcePlace {
  const char* file;
  int line;
  const char* function;

  static constexpr SourcePlace here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                    const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

/// Throws Error that says which library failed, in what and in which call.
[[noreturn]] void fail_at(const SourcePlace& where, const char* library, const char* what);

/// Throws Error that names the call's place.
void check(cudaError_t result, SourcePlace where = SourcePlace::here());

/// To be called after a kernel launch, which returns nothing itself.
inline void check_launch(SourcePlace where = SourcePlace::here()) { check(cudaGetLastError(), where); }

}  // namespace tetrad::cuda
