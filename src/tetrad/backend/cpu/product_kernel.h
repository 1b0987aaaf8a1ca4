// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tetrad::cpu {

/// What multiplies operands that are BF16 values: fused multiply-adds, or the processor's BF16 products. The
/// sums are the same, but for subnormals on x86-64 (docs/numerics.md).
enum class ProductKernel : std::uint8_t { f32, bf16 };

}  // namespace tetrad::cpu
