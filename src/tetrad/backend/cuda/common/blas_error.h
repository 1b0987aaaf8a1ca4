// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every call into cuBLASLt is checked, in every build type.

#include <cublasLt.h>

#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {

/// Throws Error that names the call's place.
void check(cublasStatus_t result, SourcePlace where = SourcePlace::here());

}  // namespace tetrad::cuda
