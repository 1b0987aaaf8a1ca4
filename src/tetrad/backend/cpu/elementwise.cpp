// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/elementwise.h"

#include "tetrad/backend/cpu/element.h"
#include "tetrad/ops/check_rows.h"

namespace tetrad::cpu {

void add(Threads& threads, const Add& op) {
  const std::int64_t width = op.sum.cols;
  check_rows("add", "a", op.a, op.sum.rows, width, op.sum.dtype);
  check_rows("add", "b", op.b, op.sum.rows, width, op.sum.dtype);
  with_element(op.sum.dtype, "add", [&]<typename T>(T) {
    parallel_ranges(threads, op.sum.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const T* a = row_of<T>(op.a, row);
        const T* b = row_of<T>(op.b, row);
        T* sum = row_of<T>(op.sum, row);
        for (std::int64_t i = 0; i < width; ++i) store(sum[i], load(a[i]) + load(b[i]));
      }
    });
  });
}

void cast(Threads& threads, const Cast& op) {
  check_rows("cast", "in", op.in, op.out.rows, op.out.cols, op.in.dtype);
  const std::int64_t width = op.out.cols;
  with_element(op.in.dtype, "cast", [&]<typename In>(In) {
    with_element(op.out.dtype, "cast", [&]<typename Out>(Out) {
      parallel_ranges(threads, op.out.rows, rows_per_piece(width),
                      [&](std::int64_t first, std::int64_t last) {
                        for (std::int64_t row = first; row < last; ++row) {
                          const In* in = row_of<In>(op.in, row);
                          Out* out = row_of<Out>(op.out, row);
                          for (std::int64_t i = 0; i < width; ++i) store(out[i], load(in[i]));
                        }
                      });
    });
  });
}

}  // namespace tetrad::cpu
