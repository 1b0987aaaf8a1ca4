// SPDX-License-Identifier: Apache-2.0
// A block works on one row after the other, or on one head of them, and holds it in registers, so everything
// is read once. The grid is [blocks of rows, heads].

#include "tetrad/backend/cuda/layers/layers.h"

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kInRegisters = 8;  //!< groups of columns per thread; wider rows go through local memory
constexpr int kMostGroups = 64;

/// Calls body(k, first column) for each of the thread's groups of kWidth columns; k counts them.
template <int kWidth, int kGroups, typename Body>
__device__ inline void for_own_columns(std::int64_t width, const Body& body) {
#pragma unroll(kGroups <= kInRegisters ? kGroups : 1)
  for (int k = 0; k < kGroups; ++k) {
    const std::int64_t col = (std::int64_t{k} * blockDim.x + threadIdx.x) * kWidth;
    if (col < width) body(k, col);
  }
}

template <typename T, int kWidth, int kGroups>
__global__ void __launch_bounds__(kMaxThreads)
    rms_norm_kernel(View<const T> x, const float* weight, float epsilon, View<T> y, float* inverse_rms,
                    Extent extent) {
  __shared__ float shared[kWarp];
  const std::int64_t head = blockIdx.y * extent.cols;
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    float value[kGroups][kWidth];
    float sum = 0;
    for_own_columns<kWidth, kGroups>(extent.cols, [&](int k, std::int64_t col) {
      load(x.row(row) + head + col, value[k]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += value[k][i] * value[k][i];
    });
    const float r = 1.0f / sqrtf(block_sum(sum, shared) / static_cast<float>(extent.cols) + epsilon);
    for_own_columns<kWidth, kGroups>(extent.cols, [&](int k, std::int64_t col) {
      float w[kWidth];
      load(weight + col, w);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) value[k][i] = value[k][i] * r * w[i];
      store(y.row(row) + head + col, value[k]);
    });
    if (threadIdx.x == 0) inverse_rms[row * gridDim.y + blockIdx.y] = r;
  }
}

/// dx (+)= r w dy - x r^3 / n * sum(w dy x); partial[block, head, column] = sum over the block's rows of
/// dy x r. Each thread has read its dy when it writes dx.
template <typename T, int kWidth, int kGroups, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads)
    rms_norm_backward_kernel(View<const T> x, const float* weight, const float* inverse_rms, View<const T> dy,
                             View<T> dx, float* partial, Extent extent) {
  __shared__ float shared[kWarp];
  const std::int64_t head = blockIdx.y * extent.cols;
  float dweight[kGroups][kWidth] = {};
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    const float r = inverse_rms[row * gridDim.y + blockIdx.y];
    float value[kGroups][kWidth];
    float scaled[kGroups][kWidth];  // w dy
    float dot = 0;
    for_own_columns<kWidth, kGroups>(extent.cols, [&](int k, std::int64_t col) {
      float gradient[kWidth];
      float w[kWidth];
      load(x.row(row) + head + col, value[k]);
      load(dy.row(row) + head + col, gradient);
      load(weight + col, w);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        scaled[k][i] = w[i] * gradient[i];
        dot += scaled[k][i] * value[k][i];
        dweight[k][i] += gradient[i] * value[k][i] * r;
      }
    });
    const float along_x = block_sum(dot, shared) * r * r * r / static_cast<float>(extent.cols);
    for_own_columns<kWidth, kGroups>(extent.cols, [&](int k, std::int64_t col) {
      float gradient[kWidth] = {};
      if constexpr (kAdds) load(dx.row(row) + head + col, gradient);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) gradient[i] += r * scaled[k][i] - along_x * value[k][i];
      store(dx.row(row) + head + col, gradient);
    });
  }
  for_own_columns<kWidth, kGroups>(extent.cols, [&](int k, std::int64_t col) {
    store(partial + (blockIdx.x * gridDim.y + blockIdx.y) * extent.cols + col, dweight[k]);
  });
}

/// How a row is shared out among the threads of a block.
struct RowShape {
  int threads;
  std::int64_t groups;  //!< groups of columns per thread
};
RowShape shape_for(std::int64_t cols, int width) {
  const std::int64_t units = ceil_div(cols, std::int64_t{width});
  const auto threads = static_cast<int>(std::min<std::int64_t>(kMaxThreads, ceil_div(units, kWarp) * kWarp));
  return {threads, ceil_div(units, std::int64_t{threads})};
}

/// Calls body with a compile-time number of groups that is enough.
template <typename Body>
void with_groups(std::int64_t groups, const Body& body) {
  if (groups <= 1)
    body(std::integral_constant<int, 1>{});
  else if (groups <= 2)
    body(std::integral_constant<int, 2>{});
  else if (groups <= 4)
    body(std::integral_constant<int, 4>{});
  else if (groups <= 8)
    body(std::integral_constant<int, 8>{});
  else
    body(std::integral_constant<int, kMostGroups>{});
}

/// A head needs few threads, so that more blocks fit.
std::int64_t row_blocks(const Device& device, std::int64_t rows, std::int64_t heads) {
  const std::int64_t per_multiprocessor = heads == 1 ? 8 : 32;
  return std::min(rows, ceil_div(per_multiprocessor * device.multiprocessors(), heads));
}

dim3 grid_of(std::int64_t blocks, std::int64_t heads) {
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(heads)};
}

/// Of a head.
template <typename RmsNorm>
Extent extent_of(const RmsNorm& op) {
  return {op.x.rows, op.x.cols / op.heads};
}

/// The view of the first head: those after it lie as well if that one is as wide as threads read.
template <typename View>
View first_head(const View& view, std::int64_t heads) {
  View head = view;
  head.cols /= heads;
  return head;
}

bool is_wide_norm(const RmsNormForward& op) {
  return is_wide(first_head(op.x, op.heads)) && is_wide(first_head(op.y, op.heads)) && is_wide(op.weight);
}
bool is_wide_norm(const RmsNormBackward& op) {
  return is_wide(first_head(op.x, op.heads)) && is_wide(first_head(op.dy, op.heads)) &&
         is_wide(first_head(op.dx, op.heads)) && is_wide(op.weight);
}

template <typename Op>
std::int64_t widest_row_of(const Op& op) {
  std::int64_t columns = std::int64_t{kMaxThreads} * kMostGroups;
  with_width(is_wide_norm(op), [&](auto width) { columns *= width; });
  return columns;
}

}  // namespace

std::int64_t widest_row(const RmsNormForward& op) { return widest_row_of(op); }
std::int64_t widest_row(const RmsNormBackward& op) { return widest_row_of(op); }

void rms_norm(Device& device, const RmsNormForward& op) {
  check(op);
  const Extent extent = extent_of(op);
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(is_wide_norm(op), [&](auto width) {
      const RowShape shape = shape_for(extent.cols, width);
      with_groups(shape.groups, [&](auto groups) {
        launch(device, grid_of(row_blocks(device, extent.rows, op.heads), op.heads), shape.threads, 0,
               rms_norm_kernel<T, width, groups>, view_as<T>(op.x), op.weight, op.epsilon, view_as<T>(op.y),
               op.inverse_rms, extent);
      });
    });
  });
}

void rms_norm(Device& device, const RmsNormBackward& op) {
  check(op);
  const Extent extent = extent_of(op);
  const std::int64_t blocks = row_blocks(device, extent.rows, op.heads);
  auto* partial = device.scratch<float>(Device::partial_sums, blocks * op.x.cols);
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(is_wide_norm(op), [&](auto width) {
      const RowShape shape = shape_for(extent.cols, width);
      with_groups(shape.groups, [&](auto groups) {
        const auto kernel = op.accumulate == Accumulate::yes
                                ? rms_norm_backward_kernel<T, width, groups, true>
                                : rms_norm_backward_kernel<T, width, groups, false>;
        launch(device, grid_of(blocks, op.heads), shape.threads, 0, kernel, view_as<T>(op.x), op.weight,
               op.inverse_rms, view_as<T>(op.dy), view_as<T>(op.dx), partial, extent);
      });
    });
  });
  add_columns(device, partial, blocks * op.heads, extent.cols, ContiguousTarget{op.dweight});
}

}  // namespace tetrad::cuda
