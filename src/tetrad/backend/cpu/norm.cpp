// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/norm.h"

#include <cmath>

#include "tetrad/backend/cpu/column_sums.h"
#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/sums.h"

namespace tetrad::cpu {
namespace {

template <typename T>
float sum_of_squares(const T* x, std::int64_t count) {
  return sum_in_lanes<float>(count, [&](std::int64_t i, float sum) { return sum + load(x[i]) * load(x[i]); });
}

/// 1 / rms of values whose squares sum to `sum`.
float inverse_rms(float sum, std::int64_t count, float epsilon) {
  return 1.0f / std::sqrt(sum / static_cast<float>(count) + epsilon);
}

/// Head `index % heads` of row `index / heads`, in a matrix whose heads are `width` wide.
template <typename T>
const T* head_of(const MatrixView& view, std::int64_t index, std::int64_t heads, std::int64_t width) {
  return row_of<T>(view, index / heads) + index % heads * width;
}
template <typename T>
T* head_of(const MutableMatrixView& view, std::int64_t index, std::int64_t heads, std::int64_t width) {
  return row_of<T>(view, index / heads) + index % heads * width;
}

inline float gate(float y, float z) { return y * silu(z); }

}  // namespace

void rms_norm(Threads& threads, const RmsNormForward& op) {
  check(op);
  const std::int64_t width = op.x.cols / op.heads;
  const std::int64_t count = op.x.rows * op.heads;
  with_element(op.x.dtype, "rms_norm", [&]<typename T>(T) {
    parallel_ranges(threads, count, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t index = first; index < last; ++index) {
        const T* x = head_of<T>(op.x, index, op.heads, width);
        T* y = head_of<T>(op.y, index, op.heads, width);
        const float r = inverse_rms(sum_of_squares(x, width), width, op.epsilon);
        for (std::int64_t i = 0; i < width; ++i) store(y[i], load(x[i]) * r * op.weight[i]);
        op.inverse_rms[index] = r;
      }
    });
  });
}

// With r = 1/rms(x): dx = r w dy - x r^3 / n * sum(w dy x).
void rms_norm(Threads& threads, const RmsNormBackward& op) {
  check(op);
  const std::int64_t width = op.x.cols / op.heads;
  const bool adds = op.accumulate == Accumulate::yes;
  with_element(op.x.dtype, "rms_norm", [&]<typename T>(T) {
    add_column_sums(threads, op.x.rows * op.heads, width, op.dweight,
                    [&](std::int64_t index, float* dweight) {
                      const T* x = head_of<T>(op.x, index, op.heads, width);
                      const T* dy = head_of<T>(op.dy, index, op.heads, width);
                      T* dx = head_of<T>(op.dx, index, op.heads, width);
                      const float r = op.inverse_rms[index];
                      const float dot = sum_in_lanes<float>(width, [&](std::int64_t i, float sum) {
                        return sum + op.weight[i] * load(dy[i]) * load(x[i]);
                      });
                      const float along_x = dot * r * r * r / static_cast<float>(width);
                      for (std::int64_t i = 0; i < width; ++i) {
                        dweight[i] += load(dy[i]) * load(x[i]) * r;
                        const float gradient = r * op.weight[i] * load(dy[i]) - along_x * load(x[i]);
                        store(dx[i], adds ? load(dx[i]) + gradient : gradient);
                      }
                    });
  });
}

void gated_norm(Threads& threads, const GatedNormForward& op) {
  const std::int64_t width = op.y.cols;
  check(op);
  const std::int64_t group = width / op.groups;
  with_element(op.y.dtype, "gated_norm", [&]<typename T>(T) {
    parallel_ranges(threads, op.y.rows, rows_per_piece(width), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row)
        for (std::int64_t g = 0; g < op.groups; ++g) {
          const T* y = row_of<T>(op.y, row) + g * group;
          const T* z = row_of<T>(op.z, row) + g * group;
          T* out = row_of<T>(op.out, row) + g * group;
          const float squares = sum_in_lanes<float>(group, [&](std::int64_t i, float sum) {
            const float u = gate(load(y[i]), load(z[i]));
            return sum + u * u;
          });
          const float r = inverse_rms(squares, group, op.epsilon);
#pragma omp simd
          for (std::int64_t i = 0; i < group; ++i)
            store(out[i], gate(load(y[i]), load(z[i])) * r * op.weight[g * group + i]);
          op.inverse_rms[row * op.groups + g] = r;
        }
    });
  });
}

// The norm's gradient with respect to u, as above; then u = y * silu(z).
void gated_norm(Threads& threads, const GatedNormBackward& op) {
  const std::int64_t width = op.y.cols;
  check(op);
  const std::int64_t group = width / op.groups;
  with_element(op.y.dtype, "gated_norm", [&]<typename T>(T) {
    add_column_sums(threads, op.y.rows, width, op.dweight, [&](std::int64_t row, float* dweight_row) {
      for (std::int64_t g = 0; g < op.groups; ++g) {
        const T* y = row_of<T>(op.y, row) + g * group;
        const T* z = row_of<T>(op.z, row) + g * group;
        const T* dout = row_of<T>(op.dout, row) + g * group;
        T* dy = row_of<T>(op.dy, row) + g * group;
        T* dz = row_of<T>(op.dz, row) + g * group;
        const float* weight = op.weight + g * group;
        float* dweight = dweight_row + g * group;
        const float r = op.inverse_rms[row * op.groups + g];
        const float dot = sum_in_lanes<float>(group, [&](std::int64_t i, float sum) {
          return sum + weight[i] * load(dout[i]) * gate(load(y[i]), load(z[i]));
        });
        const float along_u = dot * r * r * r / static_cast<float>(group);
#pragma omp simd
        for (std::int64_t i = 0; i < group; ++i) {
          const float yi = load(y[i]);
          const float zi = load(z[i]);
          const float u = gate(yi, zi);
          const float du = r * weight[i] * load(dout[i]) - along_u * u;
          dweight[i] += load(dout[i]) * u * r;
          store(dy[i], du * silu(zi));
          store(dz[i], du * yi * silu_gradient(zi));
        }
      }
    });
  });
}

}  // namespace tetrad::cpu
