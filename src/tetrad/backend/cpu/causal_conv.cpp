// Causal depthwise convolution with silu.
//
// One task is one sequence and a strip of channels, from the first token to the last: the last few inputs
// stay in the cache, and the gradients of the weights are sums over time in order.

#include <algorithm>

#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kStrip = 64;  //!< channels; rows of scratch have this many elements

/// The last `kernel` rows of a strip, by time.
class Window {
 public:
  Window(float* rows, std::int64_t kernel) : rows_(rows), kernel_(kernel) {
    std::fill_n(rows, kernel * kStrip, 0.0f);
  }

  /// `time` may be negative: a row of zeros, until it is written.
  float* at(std::int64_t time) const { return rows_ + (time + kernel_) % kernel_ * kStrip; }

 private:
  float* rows_;
  std::int64_t kernel_;
};

/// [channels, kernel] of the strip to [kernel, kStrip], zeros beyond the channels.
void load_weights(const float* weight, std::int64_t kernel, const Part& strip, float* out) {
  std::fill_n(out, kernel * kStrip, 0.0f);
  for (std::int64_t c = 0; c < strip.cols; ++c)
    for (std::int64_t j = 0; j < kernel; ++j) out[j * kStrip + c] = weight[(strip.col + c) * kernel + j];
}

/// bias + sum_j weight[j] * x[time - kernel + 1 + j].
void convolve(const Window& x, std::int64_t time, std::int64_t kernel, const float* weights,
              const float* bias, float* out) {
  std::copy_n(bias, kStrip, out);
  for (std::int64_t j = 0; j < kernel; ++j) {
    const float* in = x.at(time - kernel + 1 + j);
    const float* weight = weights + j * kStrip;
    for (std::int64_t c = 0; c < kStrip; ++c) out[c] += weight[c] * in[c];
  }
}

/// Calls body(part, batch) for every task; the part is a strip of all rows of one sequence.
template <typename Body>
void for_each_strip(std::int64_t batch, std::int64_t sequence, std::int64_t channels, const Body& body) {
  const std::int64_t strips = ceil_div(channels, kStrip);
  parallel_for(batch * strips, [&](std::int64_t task) {
    const std::int64_t first = task % strips * kStrip;
    body(Part{task / strips * sequence, sequence, first, std::min(kStrip, channels - first)}, task / strips);
  });
}

void load_row(const MatrixView& view, const Part& strip, std::int64_t time, float* out) {
  const std::int64_t at = (strip.row + time) * view.row_stride + strip.col;
  if (view.dtype == DType::bf16)
    for (std::int64_t c = 0; c < strip.cols; ++c)
      out[c] = static_cast<const Bf16*>(view.data)[at + c].to_f32();
  else
    std::copy_n(static_cast<const float*>(view.data) + at, strip.cols, out);
}

void store_row(const float* in, const MutableMatrixView& view, const Part& strip, std::int64_t time) {
  store_rows(in, kStrip, view, {strip.row + time, 1, strip.col, strip.cols});
}

void convolve_strip(const CausalConvForward& op, const Part& strip) {
  thread_local Buffer buffer;
  Scratch scratch(buffer, (2 * op.kernel + 2) * kStrip);
  const Window x(scratch.take(op.kernel * kStrip), op.kernel);
  float* weights = scratch.take(op.kernel * kStrip);
  float* bias = scratch.take(kStrip);
  float* out = scratch.take(kStrip);
  load_weights(op.weight, op.kernel, strip, weights);
  load_weights(op.bias, 1, strip, bias);
  for (std::int64_t t = 0; t < op.sequence; ++t) {
    load_row(op.x, strip, t, x.at(t));
    convolve(x, t, op.kernel, weights, bias, out);
    for (std::int64_t c = 0; c < kStrip; ++c) out[c] = silu(out[c]);
    store_row(out, op.out, strip, t);
  }
}

/// dx[time] = sum_j weight[j] * dsum[time + kernel - 1 - j], where dsum is the gradient of what silu is
/// taken of.
void convolve_backwards(const Window& dsum, std::int64_t time, std::int64_t kernel, const float* weights,
                        float* out) {
  std::fill_n(out, kStrip, 0.0f);
  for (std::int64_t j = 0; j < kernel; ++j) {
    const float* in = dsum.at(time + kernel - 1 - j);
    const float* weight = weights + j * kStrip;
    for (std::int64_t c = 0; c < kStrip; ++c) out[c] += weight[c] * in[c];
  }
}

/// `sums` gets the gradients of the strip's weights and bias: [kernel + 1, kStrip].
void differentiate_strip(const CausalConvBackward& op, const Part& strip, float* sums) {
  thread_local Buffer buffer;
  const std::int64_t kernel = op.kernel;
  Scratch scratch(buffer, (3 * kernel + 3) * kStrip);
  const Window x(scratch.take(kernel * kStrip), kernel);
  const Window dsums(scratch.take(kernel * kStrip), kernel);
  float* weights = scratch.take(kernel * kStrip);
  float* bias = scratch.take(kStrip);
  float* sum = scratch.take(kStrip);
  float* row = scratch.take(kStrip);
  load_weights(op.weight, kernel, strip, weights);
  load_weights(op.bias, 1, strip, bias);
  std::fill_n(sums, (kernel + 1) * kStrip, 0.0f);
  std::fill_n(row, kStrip, 0.0f);
  // A row of dx is complete kernel - 1 tokens later.
  for (std::int64_t t = 0; t < op.sequence + kernel - 1; ++t) {
    float* dsum = dsums.at(t);
    if (t < op.sequence) {
      load_row(op.x, strip, t, x.at(t));
      convolve(x, t, kernel, weights, bias, sum);
      load_row(op.dout, strip, t, row);
      for (std::int64_t c = 0; c < kStrip; ++c) dsum[c] = row[c] * silu_gradient(sum[c]);
      for (std::int64_t j = 0; j < kernel; ++j) {
        const float* in = x.at(t - kernel + 1 + j);
        for (std::int64_t c = 0; c < kStrip; ++c) sums[j * kStrip + c] += dsum[c] * in[c];
      }
      for (std::int64_t c = 0; c < kStrip; ++c) sums[kernel * kStrip + c] += dsum[c];
    } else {
      std::fill_n(dsum, kStrip, 0.0f);
    }
    const std::int64_t complete = t - kernel + 1;
    if (complete < 0) continue;
    convolve_backwards(dsums, complete, kernel, weights, sum);
    store_row(sum, op.dx, strip, complete);
  }
}

}  // namespace

void causal_conv(const CausalConvForward& op) {
  check(op);
  for_each_strip(op.batch, op.sequence, op.x.cols,
                 [&](const Part& strip, std::int64_t /*batch*/) { convolve_strip(op, strip); });
}

void causal_conv(const CausalConvBackward& op) {
  check(op);
  thread_local Buffer buffer;
  const std::int64_t channels = op.x.cols;
  const std::int64_t strips = ceil_div(channels, kStrip);
  const std::int64_t strip_size = (op.kernel + 1) * kStrip;
  float* sums = workspace(buffer, op.batch * strips * strip_size);
  for_each_strip(op.batch, op.sequence, channels, [&](const Part& strip, std::int64_t batch) {
    differentiate_strip(op, strip, sums + (batch * strips + strip.col / kStrip) * strip_size);
  });
  for (std::int64_t batch = 0; batch < op.batch; ++batch)
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const float* sum = sums + (batch * strips + channel / kStrip) * strip_size + channel % kStrip;
      for (std::int64_t j = 0; j < op.kernel; ++j) op.dweight[channel * op.kernel + j] += sum[j * kStrip];
      op.dbias[channel] += sum[op.kernel * kStrip];
    }
}

}  // namespace tetrad::cpu
