// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/check_rows.h"

#include "tetrad/core/error.h"

namespace tetrad {

void check_rows(std::string_view op, std::string_view name, const MatrixView& view, std::int64_t rows,
                std::int64_t cols, DType dtype) {
  TETRAD_CHECK(view.rows == rows && view.cols == cols, "{}: {} is [{}, {}], expected [{}, {}]", op, name,
               view.rows, view.cols, rows, cols);
  TETRAD_CHECK(view.data != nullptr && view.is_row_major() && (rows == 1 || view.row_stride >= cols),
               "{}: {} must be row-major", op, name);
  TETRAD_CHECK(view.dtype == dtype && (dtype == DType::f32 || dtype == DType::bf16),
               "{}: {} is {}, but the activations of a call must all be F32 or all be BF16", op, name,
               name_of(view.dtype));
}

void check_rows(std::string_view op, std::string_view name, const MutableMatrixView& view, std::int64_t rows,
                std::int64_t cols, DType dtype) {
  check_rows(op, name,
             MatrixView{view.data, view.dtype, view.rows, view.cols, view.row_stride, view.col_stride}, rows,
             cols, dtype);
}

}  // namespace tetrad
