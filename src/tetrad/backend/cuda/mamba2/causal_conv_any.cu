// SPDX-License-Identifier: Apache-2.0
// Causal depthwise convolution with silu, of any kernel length: simple rather than fast.

#include "tetrad/backend/cuda/mamba2/causal_conv.cuh"

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"

namespace tetrad::cuda {
namespace {

/// Every input is read once for each tap.
template <typename T>
__device__ inline float convolve(const ConvShape& shape, const ConvPlace& place, const View<const T>& x,
                                 const float* weight, float bias, std::int64_t time) {
  float sum = bias;
  const std::int64_t start = shape.start(place.row + time);
  for (std::int64_t j = 0; j < shape.kernel; ++j) {
    const std::int64_t from = time - shape.kernel + 1 + j;
    if (from >= start) sum += weight[j] * to_f32(x.row(place.row + from)[place.channel]);
  }
  return sum;
}

template <typename T>
__global__ void any_conv_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias,
                                View<T> out) {
  const ConvPlace place = place_of<1>(shape);
  if (place.channel >= shape.channels) return;
  for (std::int64_t t = place.first; t < place.last; ++t)
    assign(out.row(place.row + t)[place.channel],
           silu(convolve(shape, place, x, weight + place.channel * shape.kernel, bias[place.channel], t)));
}

/// With g the gradient of what silu is taken of: writes g to `gradient`, [batch * sequence, channels].
template <typename T>
__global__ void any_conv_gradient_kernel(ConvShape shape, View<const T> x, const float* weight,
                                         const float* bias, View<const T> dout, float* gradient) {
  const ConvPlace place = place_of<1>(shape);
  if (place.channel >= shape.channels) return;
  for (std::int64_t t = place.first; t < place.last; ++t) {
    const float sum =
        convolve(shape, place, x, weight + place.channel * shape.kernel, bias[place.channel], t);
    gradient[(place.row + t) * shape.channels + place.channel] =
        to_f32(dout.row(place.row + t)[place.channel]) * silu_with_gradient(sum).gradient;
  }
}

/// From g: dx, and the sums of each piece in partial[piece, tap (the bias last), channel].
template <typename T>
__global__ void any_conv_backward_kernel(ConvShape shape, View<const T> x, const float* weight,
                                         const float* gradient, View<T> dx, float* partial) {
  const ConvPlace place = place_of<1>(shape);
  if (place.channel >= shape.channels) return;
  const float* g = gradient + place.row * shape.channels + place.channel;
  for (std::int64_t t = place.first; t < place.last; ++t) {
    float sum = 0;
    for (std::int64_t j = 0; j < shape.kernel; ++j) {
      const std::int64_t to = t + shape.kernel - 1 - j;
      if (to < shape.sequence && shape.start(place.row + to) <= t)
        sum += weight[place.channel * shape.kernel + j] * g[to * shape.channels];
    }
    assign(dx.row(place.row + t)[place.channel], sum);
  }
  const std::int64_t piece = place.span * kPieces + threadIdx.x / kLanes;
  for (std::int64_t j = 0; j <= shape.kernel; ++j) {
    float sum = 0;
    for (std::int64_t t = place.first; t < place.last; ++t) {
      const std::int64_t from = t - shape.kernel + 1 + j;
      if (j == shape.kernel)
        sum += g[t * shape.channels];
      else if (from >= shape.start(place.row + t))
        sum += g[t * shape.channels] * to_f32(x.row(place.row + from)[place.channel]);
    }
    partial[(piece * (shape.kernel + 1) + j) * shape.channels + place.channel] = sum;
  }
}

}  // namespace

void causal_conv_of_any_kernel(Device& device, const CausalConvForward& op) {
  const ConvShape shape = shape_of(op, 1);
  with_type(op.x.dtype, [&]<typename T>(T) {
    launch(device, blocks_of(shape), kConvThreads, 0, any_conv_kernel<T>, shape, view_as<T>(op.x), op.weight,
           op.bias, view_as<T>(op.out));
  });
}

void causal_conv_of_any_kernel(Device& device, const CausalConvBackward& op) {
  const ConvShape shape = shape_of(op, 1);
  const std::int64_t pieces = shape.batch * shape.spans * kPieces;
  float* gradient = device.scratch<float>(Device::scan, op.x.rows * op.x.cols);
  float* partial = device.scratch<float>(Device::partial_sums, pieces * (shape.kernel + 1) * shape.channels);
  with_type(op.x.dtype, [&]<typename T>(T) {
    launch(device, blocks_of(shape), kConvThreads, 0, any_conv_gradient_kernel<T>, shape, view_as<T>(op.x),
           op.weight, op.bias, view_as<T>(op.dout), gradient);
    launch(device, blocks_of(shape), kConvThreads, 0, any_conv_backward_kernel<T>, shape, view_as<T>(op.x),
           op.weight, static_cast<const float*>(gradient), view_as<T>(op.dx), partial);
  });
  add_columns(device, partial, pieces, (shape.kernel + 1) * shape.channels,
              ConvTarget{op.dweight, op.dbias, op.x.cols, op.kernel});
}

}  // namespace tetrad::cuda
