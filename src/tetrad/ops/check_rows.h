// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the operations on activations ask of their views.

#include <cstdint>
#include <string_view>

#include "tetrad/core/matrix.h"

namespace tetrad {

/// Throws Error unless the view is row-major [rows, cols] (a column range of a wider matrix will do) of
/// `dtype`, and that is F32 or BF16.
void check_rows(std::string_view op, std::string_view name, const MatrixView& view, std::int64_t rows,
                std::int64_t cols, DType dtype);
void check_rows(std::string_view op, std::string_view name, const MutableMatrixView& view, std::int64_t rows,
                std::int64_t cols, DType dtype);

}  // namespace tetrad
