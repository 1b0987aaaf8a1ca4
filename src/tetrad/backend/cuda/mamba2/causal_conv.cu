// SPDX-License-Identifier: Apache-2.0
// Causal depthwise convolution with silu.
//
// A block is kLanes groups of neighbouring channels times kPieces pieces of one sequence. A thread slides
// over the tokens of its piece with the last kernel - 1 inputs in registers, so that x is read once, plus the
// few tokens before (and, backward, after) the piece.

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/mamba2/mamba2.h"

namespace tetrad::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kPieces = 8;
constexpr int kPiece = 32;       //!< tokens
constexpr int kUsualKernel = 4;  //!< the one that is worth registers

struct ConvShape {
  std::int64_t batch, sequence, channels;
  std::int64_t kernel;
  std::int64_t strips;  //!< each has kLanes groups of channels
  std::int64_t spans;   //!< in a sequence, each with kPieces * kPiece tokens
};

ConvShape shape_of(std::int64_t batch, std::int64_t sequence, std::int64_t kernel, std::int64_t channels,
                   int width) {
  return {batch,
          sequence,
          channels,
          kernel,
          ceil_div(channels, std::int64_t{kLanes} * width),
          ceil_div(sequence, std::int64_t{kPieces} * kPiece)};
}

std::int64_t blocks_of(const ConvShape& shape) { return shape.batch * shape.spans * shape.strips; }

/// Where a thread works.
struct Place {
  std::int64_t channel;      //!< first of the group
  std::int64_t first, last;  //!< tokens of the sequence; none where the piece lies beyond its end
  std::int64_t row;          //!< the sequence's first token
  std::int64_t span;         //!< counted over all sequences
};

template <int kWidth>
__device__ inline Place place_of(const ConvShape& shape) {
  const std::int64_t strip = blockIdx.x % shape.strips;
  const std::int64_t span = blockIdx.x / shape.strips;
  const std::int64_t lane = threadIdx.x % kLanes;
  const std::int64_t piece = span % shape.spans * kPieces + threadIdx.x / kLanes;
  const std::int64_t first = piece * kPiece;
  const std::int64_t last = first + kPiece < shape.sequence ? first + kPiece : shape.sequence;
  return {(strip * kLanes + lane) * kWidth, first, last, span / shape.spans * shape.sequence, span};
}

/// The weights of kWidth channels, by tap.
template <int kWidth, int kKernel>
__device__ inline void load_weights(const float* weight, std::int64_t channel,
                                    float (&out)[kKernel][kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
#pragma unroll
    for (int j = 0; j < kKernel; ++j) out[j][i] = weight[(channel + i) * kKernel + j];
}

template <int kWidth>
__device__ inline void set_zero(float (&values)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = 0;
}

/// The last kCount vectors, oldest first.
template <int kWidth, int kCount>
struct Window {
  float of[kCount][kWidth];

  __device__ void move_on() {
#pragma unroll
    for (int j = 0; j + 1 < kCount; ++j)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) of[j][i] = of[j + 1][i];
  }
};

/// Row `time` of the sequence; zeros before it.
template <typename T, int kWidth>
__device__ inline void load_time(const View<const T>& x, const Place& place, std::int64_t time,
                                 float (&out)[kWidth]) {
  if (time < 0)
    set_zero(out);
  else
    load(x.row(place.row + time) + place.channel, out);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kLanes* kPieces)
    conv_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias, View<T> out) {
  constexpr int kKernel = kUsualKernel;
  const Place place = place_of<kWidth>(shape);
  if (place.channel >= shape.channels || place.first >= place.last) return;
  float taps[kKernel][kWidth];
  float start[kWidth];
  load_weights(weight, place.channel, taps);
  load(bias + place.channel, start);
  Window<kWidth, kKernel> window;
#pragma unroll
  for (int j = 1; j < kKernel; ++j) load_time(x, place, place.first - kKernel + j, window.of[j]);
#pragma unroll 4
  for (std::int64_t t = place.first; t < place.last; ++t) {
    window.move_on();
    load_time(x, place, t, window.of[kKernel - 1]);
    float result[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float sum = start[i];
#pragma unroll
      for (int j = 0; j < kKernel; ++j) sum += taps[j][i] * window.of[j][i];
      result[i] = silu(sum);
    }
    store(out.row(place.row + t) + place.channel, result);
  }
}

/// Any kernel length: every input is read once for each tap.
template <typename T>
__device__ inline float convolve(const ConvShape& shape, const Place& place, const View<const T>& x,
                                 const float* weight, float bias, std::int64_t time) {
  float sum = bias;
  for (std::int64_t j = 0; j < shape.kernel; ++j) {
    const std::int64_t from = time - shape.kernel + 1 + j;
    if (from >= 0) sum += weight[j] * to_f32(x.row(place.row + from)[place.channel]);
  }
  return sum;
}

template <typename T>
__global__ void any_conv_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias,
                                View<T> out) {
  const Place place = place_of<1>(shape);
  if (place.channel >= shape.channels) return;
  for (std::int64_t t = place.first; t < place.last; ++t)
    assign(out.row(place.row + t)[place.channel],
           silu(convolve(shape, place, x, weight + place.channel * shape.kernel, bias[place.channel], t)));
}

/// The threads of a block that share channels add up their sums, piece after piece, and the first writes them
/// to partial[span, sum, channel].
template <int kSums, int kWidth>
__device__ inline void store_partial(const ConvShape& shape, const Place& place,
                                     const float (&sums)[kSums][kWidth], float* partial) {
  __shared__ float shared[kPieces][kSums][kWidth][kLanes];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int piece = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int j = 0; j < kSums; ++j)
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared[piece][j][i][lane] = sums[j][i];
  __syncthreads();
  if (piece != 0 || place.channel >= shape.channels) return;
  for (int j = 0; j < kSums; ++j) {
    float total[kWidth];
    set_zero(total);
    for (int p = 0; p < kPieces; ++p)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) total[i] += shared[p][j][i][lane];
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      partial[(place.span * kSums + j) * shape.channels + place.channel + i] = total[i];
  }
}

/// With g the gradient of what silu is taken of: dx[t] = sum_j weight[j] * g[t + kernel - 1 - j]. g of the
/// kernel - 1 tokens after the piece is computed again.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kLanes* kPieces)
    conv_backward_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias,
                         View<const T> dout, View<T> dx, float* partial) {
  constexpr int kKernel = kUsualKernel;
  const Place place = place_of<kWidth>(shape);
  float sums[kKernel + 1][kWidth];
#pragma unroll
  for (auto& sum : sums) set_zero(sum);
  if (place.channel < shape.channels && place.first < place.last) {
    float taps[kKernel][kWidth];
    float start[kWidth];
    load_weights(weight, place.channel, taps);
    load(bias + place.channel, start);
    Window<kWidth, kKernel> window;
    Window<kWidth, kKernel> g;
#pragma unroll
    for (int j = 0; j < kKernel; ++j) {
      set_zero(g.of[j]);
      if (j > 0) load_time(x, place, place.first - kKernel + j, window.of[j]);
    }
#pragma unroll 2
    for (std::int64_t t = place.first; t < place.last + kKernel - 1; ++t) {
      window.move_on();
      g.move_on();
      float(&now)[kWidth] = g.of[kKernel - 1];
      if (t < shape.sequence) {
        load_time(x, place, t, window.of[kKernel - 1]);
        load_time(dout, place, t, now);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          float sum = start[i];
#pragma unroll
          for (int j = 0; j < kKernel; ++j) sum += taps[j][i] * window.of[j][i];
          now[i] *= silu_with_gradient(sum).gradient;
        }
      } else {
        set_zero(now);
      }
      if (t < place.last) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
#pragma unroll
          for (int j = 0; j < kKernel; ++j) sums[j][i] += now[i] * window.of[j][i];
          sums[kKernel][i] += now[i];
        }
      }
      const std::int64_t complete = t - (kKernel - 1);
      if (complete >= place.first) {
        float result[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          result[i] = 0;
#pragma unroll
          for (int j = 0; j < kKernel; ++j) result[i] += taps[kKernel - 1 - j][i] * g.of[j][i];
        }
        store(dx.row(place.row + complete) + place.channel, result);
      }
    }
  }
  store_partial(shape, place, sums, partial);
}

/// Any kernel length. Writes g to `gradient`, [batch * sequence, channels].
template <typename T>
__global__ void any_conv_gradient_kernel(ConvShape shape, View<const T> x, const float* weight,
                                         const float* bias, View<const T> dout, float* gradient) {
  const Place place = place_of<1>(shape);
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
  const Place place = place_of<1>(shape);
  if (place.channel >= shape.channels) return;
  const float* g = gradient + place.row * shape.channels + place.channel;
  for (std::int64_t t = place.first; t < place.last; ++t) {
    float sum = 0;
    for (std::int64_t j = 0; j < shape.kernel; ++j) {
      const std::int64_t to = t + shape.kernel - 1 - j;
      if (to < shape.sequence) sum += weight[place.channel * shape.kernel + j] * g[to * shape.channels];
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
      else if (from >= 0)
        sum += g[t * shape.channels] * to_f32(x.row(place.row + from)[place.channel]);
    }
    partial[(piece * (shape.kernel + 1) + j) * shape.channels + place.channel] = sum;
  }
}

/// Column tap * channels + channel of the partial sums; the last tap is the bias.
struct ConvTarget {
  float* dweight;
  float* dbias;
  std::int64_t channels, kernel;
  __device__ float* operator()(std::int64_t col) const {
    const std::int64_t tap = col / channels;
    const std::int64_t channel = col % channels;
    return tap == kernel ? dbias + channel : dweight + channel * kernel + tap;
  }
};

constexpr int kThreads = kLanes * kPieces;
constexpr int kBackwardWidth = 4;  //!< channels of a thread: twice as many would not leave enough registers

template <typename T>
void convolve_any_backward(Device& device, const CausalConvBackward& op, const ConvShape& shape,
                           const ConvTarget& target) {
  const std::int64_t pieces = shape.batch * shape.spans * kPieces;
  float* gradient = device.scratch<float>(Device::scan, op.x.rows * op.x.cols);
  float* partial = device.scratch<float>(Device::partial_sums, pieces * (shape.kernel + 1) * shape.channels);
  launch(device, blocks_of(shape), kThreads, 0, any_conv_gradient_kernel<T>, shape, view_as<T>(op.x),
         op.weight, op.bias, view_as<T>(op.dout), gradient);
  launch(device, blocks_of(shape), kThreads, 0, any_conv_backward_kernel<T>, shape, view_as<T>(op.x),
         op.weight, static_cast<const float*>(gradient), view_as<T>(op.dx), partial);
  add_columns(device, partial, pieces, (shape.kernel + 1) * shape.channels, target);
}

}  // namespace

void causal_conv(Device& device, const CausalConvForward& op) {
  check(op);
  with_type(op.x.dtype, [&]<typename T>(T) {
    if (op.kernel != kUsualKernel) {
      const ConvShape shape = shape_of(op.batch, op.sequence, op.kernel, op.x.cols, 1);
      launch(device, blocks_of(shape), kThreads, 0, any_conv_kernel<T>, shape, view_as<T>(op.x), op.weight,
             op.bias, view_as<T>(op.out));
      return;
    }
    with_width(is_wide(op.x) && is_wide(op.out) && is_wide(op.bias), [&](auto width) {
      const ConvShape shape = shape_of(op.batch, op.sequence, op.kernel, op.x.cols, width);
      launch(device, blocks_of(shape), kThreads, 0, conv_kernel<T, width>, shape, view_as<T>(op.x), op.weight,
             op.bias, view_as<T>(op.out));
    });
  });
}

void causal_conv(Device& device, const CausalConvBackward& op) {
  check(op);
  const ConvTarget target{op.dweight, op.dbias, op.x.cols, op.kernel};
  const bool wide = is_wide(op.x) && is_wide(op.dout) && is_wide(op.dx) && is_wide(op.bias);
  with_type(op.x.dtype, [&]<typename T>(T) {
    if (op.kernel != kUsualKernel) {
      convolve_any_backward<T>(device, op, shape_of(op.batch, op.sequence, op.kernel, op.x.cols, 1), target);
      return;
    }
    with_width(wide, [&](auto wide_or_one) {
      constexpr int kWidth = wide_or_one == 1 ? 1 : kBackwardWidth;
      const ConvShape shape = shape_of(op.batch, op.sequence, op.kernel, op.x.cols, kWidth);
      const std::int64_t spans = shape.batch * shape.spans;
      float* partial =
          device.scratch<float>(Device::partial_sums, spans * (shape.kernel + 1) * shape.channels);
      launch(device, blocks_of(shape), kThreads, 0, conv_backward_kernel<T, kWidth>, shape, view_as<T>(op.x),
             op.weight, op.bias, view_as<T>(op.dout), view_as<T>(op.dx), partial);
      add_columns(device, partial, spans, (shape.kernel + 1) * shape.channels, target);
    });
  });
}

}  // namespace tetrad::cuda
