#pragma once
// Elements of files to f32 and back.

#include <cstddef>
#include <span>

#include "tetrad/core/dtype.h"

namespace tetrad {

/// BF16, F16 and F32 are what weights are stored as.
bool is_float_weight(DType dtype);

/// Exact. `bytes` need not be aligned.
void decode_values(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

/// Rounded to nearest even. Returns whether every value has a finite result.
bool encode_values(std::span<const float> values, DType dtype, std::span<std::byte> out);

}  // namespace tetrad
