// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/centring.h"

#include <algorithm>

#include "tetrad/backend/cpu/column_sums.h"
#include "tetrad/backend/cpu/element.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad::cpu {

void column_sums(Threads& threads, const ColumnSums& op) {
  const std::int64_t width = op.x.cols;
  check_rows("column_sums", "sums", op.sums, 1, width, DType::f32);
  float* sums = row_of<float>(op.sums, 0);
  std::fill_n(sums, width, 0.0f);
  with_element(op.x.dtype, "column_sums", [&]<typename T>(T) {
    add_column_sums(threads, op.x.rows, width, sums, [&](std::int64_t row, float* slice) {
      const T* x = row_of<T>(op.x, row);
      for (std::int64_t i = 0; i < width; ++i) slice[i] += load(x[i]);
    });
  });
}

void centre(Threads& threads, const Centre& op) {
  const std::int64_t width = op.x.cols;
  check_rows("centre", "sums", op.sums, 1, width, DType::f32);
  check_rows("centre", "mean", op.mean, 1, width, DType::f32);
  check_rows("centre", "out", op.out, op.x.rows, width, op.x.dtype);
  const float* sums = row_of<float>(op.sums, 0);
  float* mean = row_of<float>(op.mean, 0);
  const float share = 1.0f / static_cast<float>(op.x.rows);
  for (std::int64_t i = 0; i < width; ++i) mean[i] = sums[i] * share;
  with_element(op.x.dtype, "centre", [&]<typename T>(T) {
    parallel_ranges(threads, op.x.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const T* x = row_of<T>(op.x, row);
        T* out = row_of<T>(op.out, row);
        for (std::int64_t i = 0; i < width; ++i) store(out[i], load(x[i]) - mean[i]);
      }
    });
  });
}

void add_row(Threads& threads, const AddRow& op) {
  const std::int64_t width = op.out.cols;
  check_rows("add_row", "row", op.row, 1, width, DType::f32);
  const float* row_values = row_of<float>(op.row, 0);
  with_element(op.out.dtype, "add_row", [&]<typename T>(T) {
    parallel_ranges(threads, op.out.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        T* out = row_of<T>(op.out, row);
        for (std::int64_t i = 0; i < width; ++i) store(out[i], load(out[i]) + row_values[i]);
      }
    });
  });
}

void add_outer(Threads& threads, const AddOuter& op) {
  const std::int64_t width = op.out.cols;
  check_rows("add_outer", "column", op.column, 1, op.out.rows, DType::f32);
  check_rows("add_outer", "row", op.row, 1, width, DType::f32);
  check_rows("add_outer", "out", op.out, op.out.rows, width, DType::f32);
  const float* column = row_of<float>(op.column, 0);
  const float* row_values = row_of<float>(op.row, 0);
  parallel_ranges(threads, op.out.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      float* out = row_of<float>(op.out, row);
      for (std::int64_t i = 0; i < width; ++i) out[i] += column[row] * row_values[i];
    }
  });
}

}  // namespace tetrad::cpu
