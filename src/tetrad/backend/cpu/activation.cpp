// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/activation.h"

#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/math.h"

namespace tetrad::cpu {
namespace {

// One row; dx may be where x is.

template <typename T>
void differentiate_swiglu(const T* x, const T* dy, T* dx, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    const float gate = load(x[i]);
    store(dx[i], load(dy[i]) * load(x[width + i]) * silu_gradient(gate));
    store(dx[width + i], load(dy[i]) * silu(gate));
  }
}

template <typename T>
void differentiate_squared_relu(const T* x, const T* dy, T* dx, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) store(dx[i], 2.0f * std::max(load(x[i]), 0.0f) * load(dy[i]));
}

}  // namespace

void activation(Threads& threads, const ActivationForward& op) {
  const std::int64_t width = op.y.cols;
  check(op);
  with_element(op.y.dtype, "activation", [&]<typename T>(T) {
    parallel_ranges(threads, op.y.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const T* x = row_of<T>(op.x, row);
        T* y = row_of<T>(op.y, row);
        if (op.kind == Activation::swiglu) {
#pragma omp simd
          for (std::int64_t i = 0; i < width; ++i) store(y[i], silu(load(x[i])) * load(x[width + i]));
        } else {
          for (std::int64_t i = 0; i < width; ++i) {
            const float positive = std::max(load(x[i]), 0.0f);
            store(y[i], positive * positive);
          }
        }
      }
    });
  });
}

void activation(Threads& threads, const ActivationBackward& op) {
  const std::int64_t width = op.dy.cols;
  check(op);
  with_element(op.dy.dtype, "activation", [&]<typename T>(T) {
    parallel_ranges(threads, op.dy.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const T* x = row_of<T>(op.x, row);
        const T* dy = row_of<T>(op.dy, row);
        T* dx = row_of<T>(op.dx, row);
        if (op.kind == Activation::swiglu)
          differentiate_swiglu(x, dy, dx, width);
        else
          differentiate_squared_relu(x, dy, dx, width);
      }
    });
  });
}

}  // namespace tetrad::cpu
