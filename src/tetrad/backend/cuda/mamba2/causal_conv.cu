// SPDX-License-Identifier: Apache-2.0
// Causal depthwise convolution with silu.
//
// A thread slides over the tokens of its piece with the last kernel - 1 inputs in registers, so that x is
// read once, plus the few tokens before (and, backward, after) the piece.

#include "tetrad/backend/cuda/mamba2/causal_conv.cuh"

#include "tetrad/backend/cuda/common/column_sums.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"

namespace tetrad::cuda {
namespace {

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
__device__ inline void load_time(const View<const T>& x, const ConvPlace& place, std::int64_t time,
                                 float (&out)[kWidth]) {
  if (time < 0)
    set_zero(out);
  else
    load(x.row(place.row + time) + place.channel, out);
}

/// The tap that reads the first token of time's document, or one before all taps.
template <bool kDocuments>
__device__ inline int first_tap(const ConvShape& shape, const ConvPlace& place, std::int64_t time) {
  return kDocuments ? static_cast<int>(shape.start(place.row + time) - time) + kUsualKernel - 1 : 0;
}

template <typename T, int kWidth, bool kDocuments>
__global__ void __launch_bounds__(kConvThreads)
    conv_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias, View<T> out) {
  constexpr int kKernel = kUsualKernel;
  const ConvPlace place = place_of<kWidth>(shape);
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
    const int first = first_tap<kDocuments>(shape, place, t);
    float result[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float sum = start[i];
#pragma unroll
      for (int j = 0; j < kKernel; ++j)
        if (!kDocuments || j >= first) sum += taps[j][i] * window.of[j][i];
      result[i] = silu(sum);
    }
    store(out.row(place.row + t) + place.channel, result);
  }
}

/// The threads of a block that share channels add up their sums, piece after piece, and the first writes them
/// to partial[span, sum, channel].
template <int kSums, int kWidth>
__device__ inline void store_partial(const ConvShape& shape, const ConvPlace& place,
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
template <typename T, int kWidth, bool kDocuments>
__global__ void __launch_bounds__(kConvThreads)
    conv_backward_kernel(ConvShape shape, View<const T> x, const float* weight, const float* bias,
                         View<const T> dout, View<T> dx, float* partial) {
  constexpr int kKernel = kUsualKernel;
  const ConvPlace place = place_of<kWidth>(shape);
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
    int firsts[kKernel];  // first taps of the window's tokens
#pragma unroll
    for (int j = 0; j < kKernel; ++j) {
      firsts[j] = 0;
      set_zero(g.of[j]);
      if (j > 0) load_time(x, place, place.first - kKernel + j, window.of[j]);
    }
#pragma unroll 2
    for (std::int64_t t = place.first; t < place.last + kKernel - 1; ++t) {
      window.move_on();
      g.move_on();
      if constexpr (kDocuments)
#pragma unroll
        for (int j = 0; j + 1 < kKernel; ++j) firsts[j] = firsts[j + 1];
      float(&now)[kWidth] = g.of[kKernel - 1];
      int& first = firsts[kKernel - 1];
      if (t < shape.sequence) {
        load_time(x, place, t, window.of[kKernel - 1]);
        load_time(dout, place, t, now);
        first = first_tap<kDocuments>(shape, place, t);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          float sum = start[i];
#pragma unroll
          for (int j = 0; j < kKernel; ++j)
            if (!kDocuments || j >= first) sum += taps[j][i] * window.of[j][i];
          now[i] *= silu_with_gradient(sum).gradient;
        }
      } else {
        set_zero(now);
      }
      if (t < place.last) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
#pragma unroll
          for (int j = 0; j < kKernel; ++j)
            if (!kDocuments || j >= first) sums[j][i] += now[i] * window.of[j][i];
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
          for (int j = 0; j < kKernel; ++j)  // token `complete` is what that tap of token complete + j reads
            if (!kDocuments || kKernel - 1 - j >= firsts[j])
              result[i] += taps[kKernel - 1 - j][i] * g.of[j][i];
        }
        store(dx.row(place.row + complete) + place.channel, result);
      }
    }
  }
  store_partial(shape, place, sums, partial);
}

/// Calls body with whether there are documents.
template <typename Op, typename Body>
void with_documents(const Op& op, const Body& body) {
  if (op.document_starts == nullptr)
    body(std::false_type{});
  else
    body(std::true_type{});
}

constexpr int kBackwardWidth = 4;  //!< channels of a thread: twice as many would not leave enough registers

}  // namespace

void causal_conv(Device& device, const CausalConvForward& op) {
  check(op);
  if (op.kernel != kUsualKernel) {
    causal_conv_of_any_kernel(device, op);
    return;
  }
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.x) && is_wide(op.out) && is_wide(op.bias), [&](auto width) {
      const ConvShape shape = shape_of(op, width);
      with_documents(op, [&](auto documents) {
        launch(device, blocks_of(shape), kConvThreads, 0, conv_kernel<T, width, documents>, shape,
               view_as<T>(op.x), op.weight, op.bias, view_as<T>(op.out));
      });
    });
  });
}

void causal_conv(Device& device, const CausalConvBackward& op) {
  check(op);
  if (op.kernel != kUsualKernel) {
    causal_conv_of_any_kernel(device, op);
    return;
  }
  const ConvTarget target{op.dweight, op.dbias, op.x.cols, op.kernel};
  const bool wide = is_wide(op.x) && is_wide(op.dout) && is_wide(op.dx) && is_wide(op.bias);
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(wide, [&](auto wide_or_one) {
      constexpr int kWidth = wide_or_one == 1 ? 1 : kBackwardWidth;
      const ConvShape shape = shape_of(op, kWidth);
      const std::int64_t spans = shape.batch * shape.spans;
      float* partial =
          device.scratch<float>(Device::partial_sums, spans * (shape.kernel + 1) * shape.channels);
      with_documents(op, [&](auto documents) {
        launch(device, blocks_of(shape), kConvThreads, 0, conv_backward_kernel<T, kWidth, documents>, shape,
               view_as<T>(op.x), op.weight, op.bias, view_as<T>(op.dout), view_as<T>(op.dx), partial);
      });
      add_columns(device, partial, spans, (shape.kernel + 1) * shape.channels, target);
    });
  });
}

}  // namespace tetrad::cuda
