#include "tetrad/backend/cuda/activation.h"

#include "tetrad/backend/cuda/element.cuh"
#include "tetrad/backend/cuda/launch.cuh"
#include "tetrad/backend/cuda/math.cuh"

namespace tetrad::cuda {
namespace {

/// `up` lies `width` columns after the gate.
template <typename T, int kWidth>
__global__ void swiglu_kernel(View<const T> x, View<T> y, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float gate[kWidth];
    float up[kWidth];
    load(x.row(row) + col, gate);
    load(x.row(row) + extent.cols + col, up);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) up[i] *= silu(gate[i]);
    store(y.row(row) + col, up);
  });
}

template <typename T, int kWidth>
__global__ void swiglu_backward_kernel(View<const T> x, View<const T> dy, View<T> dx, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float gate[kWidth];
    float up[kWidth];
    float gradient[kWidth];
    load(x.row(row) + col, gate);
    load(x.row(row) + extent.cols + col, up);
    load(dy.row(row) + col, gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const SiluWithGradient silu = silu_with_gradient(gate[i]);
      gate[i] = gradient[i] * up[i] * silu.gradient;
      up[i] = gradient[i] * silu.value;
    }
    store(dx.row(row) + col, gate);
    store(dx.row(row) + extent.cols + col, up);
  });
}

template <typename T, int kWidth>
__global__ void squared_relu_kernel(View<const T> x, View<T> y, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float value[kWidth];
    load(x.row(row) + col, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float positive = positive_part(value[i]);
      value[i] = positive * positive;
    }
    store(y.row(row) + col, value);
  });
}

template <typename T, int kWidth>
__global__ void squared_relu_backward_kernel(View<const T> x, View<const T> dy, View<T> dx, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float value[kWidth];
    float gradient[kWidth];
    load(x.row(row) + col, value);
    load(dy.row(row) + col, gradient);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] = 2.0f * positive_part(value[i]) * gradient[i];
    store(dx.row(row) + col, value);
  });
}

}  // namespace

void activation(Device& device, const ActivationForward& op) {
  check(op);
  const Extent extent{op.y.rows, op.y.cols};
  with_type(op.y.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.x) && is_wide(op.y), [&](auto width) {
      launch_groups<width>(
          device, extent,
          op.kind == Activation::swiglu ? swiglu_kernel<T, width> : squared_relu_kernel<T, width>,
          view_as<T>(op.x), view_as<T>(op.y), extent);
    });
  });
}

void activation(Device& device, const ActivationBackward& op) {
  check(op);
  const Extent extent{op.dy.rows, op.dy.cols};
  with_type(op.dy.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.x) && is_wide(op.dy) && is_wide(op.dx), [&](auto width) {
      launch_groups<width>(device, extent,
                           op.kind == Activation::swiglu ? swiglu_backward_kernel<T, width>
                                                         : squared_relu_backward_kernel<T, width>,
                           view_as<T>(op.x), view_as<T>(op.dy), view_as<T>(op.dx), extent);
    });
  });
}

}  // namespace tetrad::cuda
