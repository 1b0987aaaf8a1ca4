// SPDX-License-Identifier: Apache-2.0
#pragma once
// A matrix without the mean of its rows, and what that mean adds to products with it.

#include "tetrad/core/matrix.h"

namespace tetrad {

/// sums [1, cols] (f32) of the columns of x (f32 or BF16). The order is the definition: 64 rows one after
/// another, from zero; then the sums of the 64s in their order.
struct ColumnSums {
  static constexpr std::int64_t kSlice = 64;

  MatrixView x;
  MutableMatrixView sums;
};

/// mean [1, cols] (f32) = sums * f32(1/rows); out = x - mean, in f32, rounded to its type, which is x's.
struct Centre {
  MatrixView x;
  MatrixView sums;  //!< of x
  MutableMatrixView mean;
  MutableMatrixView out;
};

/// Every row of out (f32 or BF16) += row [1, cols] (f32), in f32.
struct AddRow {
  MatrixView row;
  MutableMatrixView out;
};

/// out [rows, cols] (f32) += column [1, rows] times row [1, cols] (f32): the product is rounded, then the
/// sum.
struct AddOuter {
  MatrixView column;
  MatrixView row;
  MutableMatrixView out;
};

}  // namespace tetrad
