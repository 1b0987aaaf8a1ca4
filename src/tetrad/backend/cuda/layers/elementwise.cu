// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/layers/layers.h"

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

template <typename T, int kWidth>
__global__ void add_kernel(View<const T> a, View<const T> b, View<T> sum, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float x[kWidth];
    float y[kWidth];
    load(a.row(row) + col, x);
    load(b.row(row) + col, y);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] += y[i];
    store(sum.row(row) + col, x);
  });
}

template <typename In, typename Out, int kWidth>
__global__ void cast_kernel(View<const In> in, View<Out> out, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float x[kWidth];
    load(in.row(row) + col, x);
    store(out.row(row) + col, x);
  });
}

}  // namespace

void add(Device& device, const Add& op) {
  check_rows("add", "a", op.a, op.sum.rows, op.sum.cols, op.sum.dtype);
  check_rows("add", "b", op.b, op.sum.rows, op.sum.cols, op.sum.dtype);
  check_rows("add", "sum", op.sum, op.sum.rows, op.sum.cols, op.sum.dtype);
  const Extent extent{op.sum.rows, op.sum.cols};
  with_type(op.sum.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.a) && is_wide(op.b) && is_wide(op.sum), [&](auto width) {
      launch_groups<width>(device, extent, add_kernel<T, width>, view_as<T>(op.a), view_as<T>(op.b),
                           view_as<T>(op.sum), extent);
    });
  });
}

void cast(Device& device, const Cast& op) {
  check_rows("cast", "in", op.in, op.out.rows, op.out.cols, op.in.dtype);
  check_rows("cast", "out", op.out, op.out.rows, op.out.cols, op.out.dtype);
  const Extent extent{op.out.rows, op.out.cols};
  with_type(op.in.dtype, [&]<typename In>(In) {
    with_type(op.out.dtype, [&]<typename Out>(Out) {
      with_width(is_wide(op.in) && is_wide(op.out), [&](auto width) {
        launch_groups<width>(device, extent, cast_kernel<In, Out, width>, view_as<In>(op.in),
                             view_as<Out>(op.out), extent);
      });
    });
  });
}

}  // namespace tetrad::cuda
