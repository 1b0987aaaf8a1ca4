// SPDX-License-Identifier: Apache-2.0
// What a function does to kWidth neighbours of a row (Swiglu, SquaredRelu) is shared by two kinds of kernels:
// those that take a row's neighbours, and those that take patches of 16 rows and report the largest
// magnitudes of what they write, which the transform down the columns needs whole patches for.

#include "tetrad/backend/cuda/layers/layers.h"

#include <algorithm>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_columns.cuh"
#include "tetrad/backend/cuda/quantize/threads.cuh"

namespace tetrad::cuda {
namespace {

/// `up` lies `width` columns after the gate.
struct Swiglu {
  static constexpr int kParts = 2;  //!< parts of the input, each as wide as the output

  template <int kWidth>
  static __device__ void apply(const float (&x)[kParts][kWidth], float (&y)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = x[1][i] * silu(x[0][i]);
  }
  /// x becomes its gradient.
  template <int kWidth>
  static __device__ void differentiate(const float (&dy)[kWidth], float (&x)[kParts][kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const SiluWithGradient silu = silu_with_gradient(x[0][i]);
      x[0][i] = dy[i] * x[1][i] * silu.gradient;
      x[1][i] = dy[i] * silu.value;
    }
  }
};

struct SquaredRelu {
  static constexpr int kParts = 1;

  template <int kWidth>
  static __device__ void apply(const float (&x)[kParts][kWidth], float (&y)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float positive = positive_part(x[0][i]);
      y[i] = positive * positive;
    }
  }
  template <int kWidth>
  static __device__ void differentiate(const float (&dy)[kWidth], float (&x)[kParts][kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[0][i] = 2.0f * positive_part(x[0][i]) * dy[i];
  }
};

template <typename T, int kWidth, int kParts>
__device__ inline void load_parts(const T* row, std::int64_t width, float (&x)[kParts][kWidth]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) load(row + part * width, x[part]);
}

template <typename Function, typename T, int kWidth>
__global__ void forward_kernel(View<const T> x, View<T> y, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float in[Function::kParts][kWidth];
    float out[kWidth];
    load_parts(x.row(row) + col, extent.cols, in);
    Function::apply(in, out);
    store(y.row(row) + col, out);
  });
}

template <typename Function, typename T, int kWidth>
__global__ void backward_kernel(View<const T> x, View<const T> dy, View<T> dx, Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    float values[Function::kParts][kWidth];
    float gradient[kWidth];
    load_parts(x.row(row) + col, extent.cols, values);
    load(dy.row(row) + col, gradient);
    Function::differentiate(gradient, values);
#pragma unroll
    for (int part = 0; part < Function::kParts; ++part)
      store(dx.row(row) + part * extent.cols + col, values[part]);
  });
}

// --- with a report ----------------------------------------------------------------------------------------

constexpr int kPatchThreads = 128;
constexpr int kAhead =
    4;  // rows that a thread has under way: no load may pass a store, which may be to its place

/// Calls body(first row, first column) for each patch of this thread.
template <typename Body>
__device__ inline void for_each_patch(const Extent& extent, const Body& body) {
  const std::int64_t per_row = extent.cols / kPatchCols;
  for_each_item(extent.rows / kPatchRows * per_row, [&](std::int64_t item) {
    const std::int64_t block = item / per_row;
    body(block * kPatchRows, (item - block * per_row) * kPatchCols);
  });
}

/// Writes four neighbours, in memory and as row r of a patch.
__device__ inline void store_row(Bf16* to, const float (&values)[kPatchCols], Patch& patch, int r) {
  patch.pair[r][0] = pack_bf16(values[0], values[1]);
  patch.pair[r][1] = pack_bf16(values[2], values[3]);
  *reinterpret_cast<uint2*>(to) = {patch.pair[r][0], patch.pair[r][1]};
}

/// The largest magnitudes of the patches that a thread has written.
struct Largest {
  std::uint32_t plain = 0, transformed = 0;

  __device__ void see(const Patch& patch) {
    plain = max(plain, find_plain_amax_of_patch(patch));
    transformed = max(transformed, find_amax_of_patch<Transform::hadamard16>(patch));
  }
  __device__ void report(QuantState* states) const {
    raise_from_block(states, plain);
    raise_from_block(states + 1, transformed);
  }
};

template <typename Function>
__global__ void __launch_bounds__(kPatchThreads)
    forward_patch_kernel(View<const Bf16> x, View<Bf16> y, Extent extent, QuantState* states) {
  Largest largest;
  for_each_patch(extent, [&](std::int64_t row, std::int64_t col) {
    Patch patch;
#pragma unroll
    for (int first = 0; first < kPatchRows; first += kAhead) {
      float in[kAhead][Function::kParts][kPatchCols];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) load_parts(x.row(row + first + r) + col, extent.cols, in[r]);
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        float out[kPatchCols];
        Function::apply(in[r], out);
        store_row(y.row(row + first + r) + col, out, patch, first + r);
      }
    }
    largest.see(patch);
  });
  largest.report(states);
}

template <typename Function>
__global__ void __launch_bounds__(kPatchThreads)
    backward_patch_kernel(View<const Bf16> x, View<const Bf16> dy, View<Bf16> dx, Extent extent,
                          QuantState* states) {
  Largest largest;
  for_each_patch(extent, [&](std::int64_t row, std::int64_t col) {
    Patch patches[Function::kParts];
#pragma unroll
    for (int first = 0; first < kPatchRows; first += kAhead) {
      float values[kAhead][Function::kParts][kPatchCols];
      float gradient[kAhead][kPatchCols];
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        load_parts(x.row(row + first + r) + col, extent.cols, values[r]);
        load(dy.row(row + first + r) + col, gradient[r]);
      }
#pragma unroll
      for (int r = 0; r < kAhead; ++r) {
        Function::differentiate(gradient[r], values[r]);
#pragma unroll
        for (int part = 0; part < Function::kParts; ++part)
          store_row(dx.row(row + first + r) + part * extent.cols + col, values[r][part], patches[part],
                    first + r);
      }
    }
#pragma unroll
    for (const Patch& patch : patches) largest.see(patch);
  });
  largest.report(states);
}

template <typename... Parameters, typename... Arguments>
void launch_patches(Device& device, const Extent& extent, AmaxReport& report, void (*kernel)(Parameters...),
                    Arguments&&... arguments) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 24;
  auto* states = reinterpret_cast<QuantState*>(report.values);
  check(cudaMemsetAsync(states, 0, 2 * sizeof(QuantState), device.stream()));
  const std::int64_t patches = extent.rows / kPatchRows * (extent.cols / kPatchCols);
  launch(device,
         std::clamp<std::int64_t>(ceil_div(patches, kPatchThreads), 1,
                                  kBlocksPerMultiprocessor * device.multiprocessors()),
         kPatchThreads, 0, kernel, std::forward<Arguments>(arguments)..., extent, states);
  report.known = true;
}

/// Whether the kernels of patches serve, if a report is wanted.
bool can_tell(const AmaxReport* report, const Extent& extent, DType dtype, bool wide) {
  return report != nullptr && dtype == DType::bf16 && wide && extent.rows % kPatchRows == 0;
}

template <typename Body>
void with_function(Activation kind, const Body& body) {
  if (kind == Activation::swiglu)
    body(Swiglu{});
  else
    body(SquaredRelu{});
}

}  // namespace

void activation(Device& device, const ActivationForward& op) {
  check(op);
  const Extent extent{op.y.rows, op.y.cols};
  const bool wide = is_wide(op.x) && is_wide(op.y);
  with_function(op.kind, [&]<typename Function>(Function) {
    if (can_tell(op.amax, extent, op.y.dtype, wide)) {
      launch_patches(device, extent, *op.amax, forward_patch_kernel<Function>, view_as<Bf16>(op.x),
                     view_as<Bf16>(op.y));
      return;
    }
    with_type(op.y.dtype, [&]<typename T>(T) {
      with_width(wide, [&](auto width) {
        launch_groups<width>(device, extent, forward_kernel<Function, T, width>, view_as<T>(op.x),
                             view_as<T>(op.y), extent);
      });
    });
  });
}

void activation(Device& device, const ActivationBackward& op) {
  check(op);
  const Extent extent{op.dy.rows, op.dy.cols};
  const bool wide = is_wide(op.x) && is_wide(op.dy) && is_wide(op.dx);
  with_function(op.kind, [&]<typename Function>(Function) {
    if (can_tell(op.amax, extent, op.dy.dtype, wide)) {
      launch_patches(device, extent, *op.amax, backward_patch_kernel<Function>, view_as<Bf16>(op.x),
                     view_as<Bf16>(op.dy), view_as<Bf16>(op.dx));
      return;
    }
    with_type(op.dy.dtype, [&]<typename T>(T) {
      with_width(wide, [&](auto width) {
        launch_groups<width>(device, extent, backward_kernel<Function, T, width>, view_as<T>(op.x),
                             view_as<T>(op.dy), view_as<T>(op.dx), extent);
      });
    });
  });
}

}  // namespace tetrad::cuda
