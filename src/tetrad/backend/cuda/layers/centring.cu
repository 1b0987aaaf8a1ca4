// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/layers/layers.h"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;

/// One column of one slice of rows to a thread.
template <typename T>
__global__ void slice_sums_kernel(View<const T> x, Extent extent, std::int64_t slices, float* sums) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= slices * extent.cols) return;
  const std::int64_t slice = index / extent.cols;
  const std::int64_t col = index - slice * extent.cols;
  const std::int64_t end = min(extent.rows, (slice + 1) * ColumnSums::kSlice);
  float sum = 0.0f;
  for (std::int64_t row = slice * ColumnSums::kSlice; row < end; ++row) sum += to_f32(x.row(row)[col]);
  sums[index] = sum;
}

/// One column to a thread.
__global__ void sum_of_slices_kernel(const float* slice_sums, std::int64_t slices, std::int64_t cols,
                                     float* sums) {
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= cols) return;
  float sum = 0.0f;
  for (std::int64_t slice = 0; slice < slices; ++slice) sum += slice_sums[slice * cols + col];
  sums[col] = sum;
}

/// The first row's groups also write the mean.
template <typename T, int kWidth>
__global__ void centre_kernel(View<const T> x, const float* sums, float share, float* mean, View<T> out,
                              Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float v[kWidth];
    load(x.row(row) + col, v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float of_column = sums[col + i] * share;
      if (row == 0) mean[col + i] = of_column;
      v[i] -= of_column;
    }
    store(out.row(row) + col, v);
  });
}

template <typename T, int kWidth>
__global__ void add_row_kernel(const float* row_values, View<T> out, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float v[kWidth];
    load(out.row(row) + col, v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] += row_values[col + i];
    store(out.row(row) + col, v);
  });
}

template <int kWidth>
__global__ void add_outer_kernel(const float* column, const float* row_values, View<float> out,
                                 Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float v[kWidth];
    load(out.row(row) + col, v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] += column[row] * row_values[col + i];
    store(out.row(row) + col, v);
  });
}

const float* values_of(const MatrixView& row) { return static_cast<const float*>(row.data); }

}  // namespace

void column_sums(Device& device, const ColumnSums& op) {
  check_rows("column_sums", "x", op.x, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("column_sums", "sums", op.sums, 1, op.x.cols, DType::f32);
  const Extent extent{op.x.rows, op.x.cols};
  const std::int64_t slices = ceil_div(extent.rows, ColumnSums::kSlice);
  auto* slice_sums = reinterpret_cast<float*>(
      device.scratch(Device::partial_sums, static_cast<std::size_t>(slices * extent.cols) * sizeof(float)));
  with_type(op.x.dtype, [&]<typename T>(T) {
    launch(device, ceil_div(slices * extent.cols, std::int64_t{kThreads}), kThreads, 0, slice_sums_kernel<T>,
           view_as<T>(op.x), extent, slices, slice_sums);
  });
  launch(device, ceil_div(extent.cols, std::int64_t{kThreads}), kThreads, 0, sum_of_slices_kernel, slice_sums,
         slices, extent.cols, static_cast<float*>(op.sums.data));
}

void centre(Device& device, const Centre& op) {
  check_rows("centre", "x", op.x, op.x.rows, op.x.cols, op.x.dtype);
  check_rows("centre", "sums", op.sums, 1, op.x.cols, DType::f32);
  check_rows("centre", "mean", op.mean, 1, op.x.cols, DType::f32);
  check_rows("centre", "out", op.out, op.x.rows, op.x.cols, op.x.dtype);
  const Extent extent{op.x.rows, op.x.cols};
  const float share = 1.0f / static_cast<float>(extent.rows);
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.x) && is_wide(op.out), [&](auto width) {
      launch_groups<width>(device, extent, centre_kernel<T, width>, view_as<T>(op.x), values_of(op.sums),
                           share, static_cast<float*>(op.mean.data), view_as<T>(op.out), extent);
    });
  });
}

void add_row(Device& device, const AddRow& op) {
  check_rows("add_row", "row", op.row, 1, op.out.cols, DType::f32);
  check_rows("add_row", "out", op.out, op.out.rows, op.out.cols, op.out.dtype);
  const Extent extent{op.out.rows, op.out.cols};
  with_type(op.out.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.out), [&](auto width) {
      launch_groups<width>(device, extent, add_row_kernel<T, width>, values_of(op.row), view_as<T>(op.out),
                           extent);
    });
  });
}

void add_outer(Device& device, const AddOuter& op) {
  check_rows("add_outer", "column", op.column, 1, op.out.rows, DType::f32);
  check_rows("add_outer", "row", op.row, 1, op.out.cols, DType::f32);
  check_rows("add_outer", "out", op.out, op.out.rows, op.out.cols, DType::f32);
  const Extent extent{op.out.rows, op.out.cols};
  with_width(is_wide(op.out), [&](auto width) {
    launch_groups<width>(device, extent, add_outer_kernel<width>, values_of(op.column), values_of(op.row),
                         view_as<float>(op.out), extent);
  });
}

}  // namespace tetrad::cuda
