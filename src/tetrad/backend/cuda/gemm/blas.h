// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dense products through cuBLASLt.

#include <filesystem>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/gemm/scaled_operand.h"
#include "tetrad/core/matrix.h"

namespace tetrad::cuda {

/// out[M,N] = alpha a[M,K] . b[N,K]^T + beta out, for a and b both BF16 or both f32, lying either way, and
/// out f32 or BF16. alpha and beta are on the device.
void multiply(Device& device, const MatrixView& a, const MatrixView& b, const MutableMatrixView& out,
              const float* alpha, const float* beta);

/// The same for operands with block scales; false, and nothing done, where cuBLASLt has no kernel for them.
[[nodiscard]] bool multiply(Device& device, const ScaledOperands& operands, const MutableMatrixView& out,
                            const float* alpha, const float* beta);

/// Which kernels products take is kept in this folder, too (algorithm_cache.h).
void keep_choices_in(Device& device, const std::filesystem::path& folder);

}  // namespace tetrad::cuda
