// SPDX-License-Identifier: Apache-2.0
// The gated norm over groups: u = y * silu(z); out = u / rms(u over its group) * weight.
//
// A warp takes one group of one token. Where a lane can hold its share of the group in registers, everything
// is read once; otherwise it is read again for the second pass.

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/layers/layers.h"

namespace tetrad::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr std::int64_t kPiece = 64;  //!< tokens whose share of dweight a block sums up

struct GatedShape {
  std::int64_t tokens, groups, group;  //!< `group` is the channels of one
  float epsilon;
};

__device__ inline float inverse_rms_of(float sum, const GatedShape& shape) {
  return 1.0f / sqrtf(sum / static_cast<float>(shape.group) + shape.epsilon);
}

/// Column of vector `i` of this lane within the group.
template <int kWidth>
__device__ inline std::int64_t column_of(std::int64_t i) {
  return (i * kWarp + threadIdx.x % kWarp) * kWidth;
}

/// The group has at most kVectors * kWarp * kWide channels.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(GatedShape shape, View<const T> y, View<const T> z, const float* weight, View<T> out,
                      float* inverse_rms) {
  const std::int64_t task = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (task >= shape.tokens * shape.groups) return;
  const std::int64_t row = task / shape.groups;
  const std::int64_t first = task % shape.groups * shape.group;
  float u[kVectors][kWide];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t col = column_of<kWide>(v);
    if (col >= shape.group) continue;
    float gate[kWide];
    load(y.row(row) + first + col, u[v]);
    load(z.row(row) + first + col, gate);
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      u[v][i] *= silu(gate[i]);
      sum += u[v][i] * u[v][i];
    }
  }
  const float r = inverse_rms_of(warp_sum(sum), shape);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t col = column_of<kWide>(v);
    if (col >= shape.group) continue;
    float w[kWide];
    load(weight + first + col, w);
#pragma unroll
    for (int i = 0; i < kWide; ++i) u[v][i] = u[v][i] * r * w[i];
    store(out.row(row) + first + col, u[v]);
  }
  if (threadIdx.x % kWarp == 0) inverse_rms[task] = r;
}

/// Groups of any width, anywhere.
template <typename T>
__global__ void any_gated_norm_kernel(GatedShape shape, View<const T> y, View<const T> z, const float* weight,
                                      View<T> out, float* inverse_rms) {
  const std::int64_t task = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (task >= shape.tokens * shape.groups) return;
  const std::int64_t row = task / shape.groups;
  const std::int64_t first = task % shape.groups * shape.group;
  const auto gated = [&](std::int64_t i) {
    return to_f32(y.row(row)[first + i]) * silu(to_f32(z.row(row)[first + i]));
  };
  float sum = 0;
  for (std::int64_t i = threadIdx.x % kWarp; i < shape.group; i += kWarp) sum += gated(i) * gated(i);
  const float r = inverse_rms_of(warp_sum(sum), shape);
  for (std::int64_t i = threadIdx.x % kWarp; i < shape.group; i += kWarp)
    assign(out.row(row)[first + i], gated(i) * r * weight[first + i]);
  if (threadIdx.x % kWarp == 0) inverse_rms[task] = r;
}

template <typename T>
struct GatedBackwardViews {
  View<const T> y, z, dout;
  const float* weight;
  const float* inverse_rms;
  View<T> dy, dz;
};

/// With r = 1/rms(u): du = r w dout - u r^3 / n * sum(w dout u); then u = y * silu(z). A block takes kPiece
/// tokens of one group and leaves its share of dweight in partial[piece, width].
template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    gated_norm_backward_kernel(GatedShape shape, GatedBackwardViews<T> in, float* partial) {
  __shared__ float shared[kWarps][kWarp * kWide];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t piece = blockIdx.x / shape.groups;
  const std::int64_t group = blockIdx.x % shape.groups;
  const std::int64_t first = group * shape.group;
  const std::int64_t end = (piece + 1) * kPiece < shape.tokens ? (piece + 1) * kPiece : shape.tokens;
  float dweight[kVectors][kWide] = {};
  for (std::int64_t row = piece * kPiece + warp; row < end; row += kWarps) {
    const float r = in.inverse_rms[row * shape.groups + group];
    float y[kVectors][kWide];
    float z[kVectors][kWide];
    float dout[kVectors][kWide];
    float dot = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t col = column_of<kWide>(v);
      if (col >= shape.group) continue;
      float w[kWide];
      load(in.y.row(row) + first + col, y[v]);
      load(in.z.row(row) + first + col, z[v]);
      load(in.dout.row(row) + first + col, dout[v]);
      load(in.weight + first + col, w);
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const float u = y[v][i] * silu(z[v][i]);
        dweight[v][i] += dout[v][i] * u * r;
        dout[v][i] *= w[i];
        dot += dout[v][i] * u;
      }
    }
    const float along_u = warp_sum(dot) * r * r * r / static_cast<float>(shape.group);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t col = column_of<kWide>(v);
      if (col >= shape.group) continue;
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const SiluWithGradient gate = silu_with_gradient(z[v][i]);
        const float du = r * dout[v][i] - along_u * (y[v][i] * gate.value);
        dout[v][i] = du * gate.value;
        z[v][i] = du * y[v][i] * gate.gradient;
      }
      store(in.dy.row(row) + first + col, dout[v]);
      store(in.dz.row(row) + first + col, z[v]);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) shared[warp][i * kWarp + lane] = dweight[v][i];
    __syncthreads();
    // thread t sums column t of the vectors: element t / kWarp of lane t % kWarp
    const std::int64_t col = (std::int64_t{v} * kWarp + lane) * kWide + warp;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[w][threadIdx.x];
    if (col < shape.group) partial[piece * shape.groups * shape.group + first + col] = sum;
    __syncthreads();
  }
}
static_assert(kWarps == kWide, "each warp writes one element of every lane's vector");

template <typename T>
__global__ void any_gated_norm_backward_kernel(GatedShape shape, GatedBackwardViews<T> in) {
  const std::int64_t task = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (task >= shape.tokens * shape.groups) return;
  const std::int64_t row = task / shape.groups;
  const std::int64_t first = task % shape.groups * shape.group;
  const float r = in.inverse_rms[task];
  float dot = 0;
  for (std::int64_t i = first + threadIdx.x % kWarp; i < first + shape.group; i += kWarp)
    dot += in.weight[i] * to_f32(in.dout.row(row)[i]) *
           (to_f32(in.y.row(row)[i]) * silu(to_f32(in.z.row(row)[i])));
  const float along_u = warp_sum(dot) * r * r * r / static_cast<float>(shape.group);
  for (std::int64_t i = first + threadIdx.x % kWarp; i < first + shape.group; i += kWarp) {
    const float y = to_f32(in.y.row(row)[i]);
    const SiluWithGradient gate = silu_with_gradient(to_f32(in.z.row(row)[i]));
    const float du = r * in.weight[i] * to_f32(in.dout.row(row)[i]) - along_u * (y * gate.value);
    assign(in.dy.row(row)[i], du * gate.value);
    assign(in.dz.row(row)[i], du * y * gate.gradient);
  }
}

/// A thread sums one channel over kPiece tokens, to partial[piece, width].
template <typename T>
__global__ void any_gated_norm_dweight_kernel(GatedShape shape, GatedBackwardViews<T> in, float* partial) {
  const std::int64_t width = shape.groups * shape.group;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t piece = index / width;
  const std::int64_t col = index % width;
  float sum = 0;
  for (std::int64_t row = piece * kPiece; row < (piece + 1) * kPiece && row < shape.tokens; ++row) {
    const float u = to_f32(in.y.row(row)[col]) * silu(to_f32(in.z.row(row)[col]));
    sum += to_f32(in.dout.row(row)[col]) * u * in.inverse_rms[row * shape.groups + col / shape.group];
  }
  if (piece * kPiece < shape.tokens) partial[index] = sum;
}

constexpr int kMostVectors = 4;  //!< the most vectors of kWide channels that a lane holds

/// Calls body with the number of vectors of a lane, or with 0 where the general kernels have to do it.
template <typename Body>
void with_vectors(bool wide, std::int64_t group, const Body& body) {
  const std::int64_t vectors = ceil_div(group, std::int64_t{kWarp} * kWide);
  if (!wide || group % kWide != 0 || vectors > kMostVectors)
    body(std::integral_constant<int, 0>{});
  else if (vectors == 1)
    body(std::integral_constant<int, 1>{});
  else if (vectors == 2)
    body(std::integral_constant<int, 2>{});
  else
    body(std::integral_constant<int, kMostVectors>{});
}

}  // namespace

void gated_norm(Device& device, const GatedNormForward& op) {
  check(op);
  const std::int64_t group = op.y.cols / op.groups;
  const GatedShape shape{op.y.rows, op.groups, group, op.epsilon};
  const std::int64_t blocks = ceil_div(shape.tokens * shape.groups, kWarps);
  const bool wide = is_wide(op.y) && is_wide(op.z) && is_wide(op.out) && is_wide(op.weight);
  with_type(op.y.dtype, [&]<typename T>(T) {
    with_vectors(wide, group, [&](auto vectors) {
      auto* kernel = any_gated_norm_kernel<T>;
      if constexpr (vectors > 0) kernel = gated_norm_kernel<T, vectors>;
      launch(device, blocks, kThreads, 0, kernel, shape, view_as<T>(op.y), view_as<T>(op.z), op.weight,
             view_as<T>(op.out), op.inverse_rms);
    });
  });
}

void gated_norm(Device& device, const GatedNormBackward& op) {
  const std::int64_t width = op.y.cols;
  check(op);
  const std::int64_t group = width / op.groups;
  const GatedShape shape{op.y.rows, op.groups, group, 0};
  const std::int64_t pieces = ceil_div(shape.tokens, kPiece);
  float* partial = device.scratch<float>(Device::partial_sums, pieces * width);
  const bool wide = is_wide(op.y) && is_wide(op.z) && is_wide(op.dout) && is_wide(op.dy) && is_wide(op.dz) &&
                    is_wide(op.weight);
  with_type(op.y.dtype, [&]<typename T>(T) {
    const GatedBackwardViews<T> views{view_as<T>(op.y), view_as<T>(op.z),  view_as<T>(op.dout), op.weight,
                                      op.inverse_rms,   view_as<T>(op.dy), view_as<T>(op.dz)};
    with_vectors(wide, group, [&](auto vectors) {
      if constexpr (vectors > 0) {
        launch(device, pieces * shape.groups, kThreads, 0, gated_norm_backward_kernel<T, vectors>, shape,
               views, partial);
      } else {
        launch(device, ceil_div(pieces * width, kThreads), kThreads, 0, any_gated_norm_dweight_kernel<T>,
               shape, views, partial);
        launch(device, ceil_div(shape.tokens * shape.groups, kWarps), kThreads, 0,
               any_gated_norm_backward_kernel<T>, shape, views);
      }
    });
  });
  add_columns(device, partial, pieces, width, ContiguousTarget{op.dweight});
}

}  // namespace tetrad::cuda
