// SPDX-License-Identifier: Apache-2.0
// Causal depthwise convolution with silu.
//
// One task is one sequence and a strip of channels, in tiles of tokens from the first to the last, so that
// the gradients of the weights are sums over time in order. A tile has the kernel - 1 rows before it in
// front.

#include <algorithm>

#include "tetrad/backend/cpu/mamba2.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kStrip = 64;  //!< channels; rows of scratch have this many elements
constexpr std::int64_t kTile = 64;   //!< tokens

/// [channels, kernel] of the strip to [kernel, kStrip], zeros beyond the channels.
void load_weights(const float* weight, std::int64_t kernel, const Part& strip, float* out) {
  std::fill_n(out, kernel * kStrip, 0.0f);
  for (std::int64_t c = 0; c < strip.cols; ++c)
    for (std::int64_t j = 0; j < kernel; ++j) out[j * kStrip + c] = weight[(strip.col + c) * kernel + j];
}

/// A tile of rows of a strip, with `history` rows in front that stay from one tile to the next.
class Tile {
 public:
  Tile(Scratch& scratch, std::int64_t history) : rows_(scratch.take(size(history))), history_(history) {
    std::fill_n(rows_, history * kStrip, 0.0f);
  }

  static std::int64_t size(std::int64_t history) { return (history + kTile) * kStrip; }

  float* with_history() const { return rows_; }
  float* rows() const { return rows_ + history_ * kStrip; }

  /// After a tile of `count` rows.
  void move_on(std::int64_t count) const { std::copy_n(rows_ + count * kStrip, history_ * kStrip, rows_); }

 private:
  float* rows_;
  std::int64_t history_;
};

/// out[r] = bias + sum_j weights[j] * in[r + j] for `rows` rows.
void slide(const float* in, const float* weights, std::int64_t kernel, const float* bias, std::int64_t rows,
           float* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < kStrip; c += kNativeLanes) {
      F32xN sum = load_native(bias + c);
      for (std::int64_t j = 0; j < kernel; ++j)
        sum = fused(load_native(weights + j * kStrip + c), load_native(in + (r + j) * kStrip + c), sum);
      store_native(sum, out + r * kStrip + c);
    }
}

/// sums[j] += sum over rows of dsum[r] * x[r + j], and sums[kernel] += sum over rows of dsum[r].
void sum_weight_gradients(const float* dsum, const float* x, std::int64_t kernel, std::int64_t rows,
                          float* sums) {
  for (std::int64_t c = 0; c < kStrip; c += kNativeLanes) {
    for (std::int64_t j = 0; j < kernel; ++j) {
      F32xN sum = load_native(sums + j * kStrip + c);
      for (std::int64_t r = 0; r < rows; ++r)
        sum = fused(load_native(dsum + r * kStrip + c), load_native(x + (r + j) * kStrip + c), sum);
      store_native(sum, sums + j * kStrip + c);
    }
    F32xN sum = load_native(sums + kernel * kStrip + c);
    for (std::int64_t r = 0; r < rows; ++r) sum += load_native(dsum + r * kStrip + c);
    store_native(sum, sums + kernel * kStrip + c);
  }
}

/// Calls body(part, batch) for every task; the part is a strip of all rows of one sequence.
template <typename Body>
void for_each_strip(Threads& threads, std::int64_t batch, std::int64_t sequence, std::int64_t channels,
                    const Body& body) {
  const std::int64_t strips = ceil_div(channels, kStrip);
  threads.parallel_for(batch * strips, [&](std::int64_t task) {
    const std::int64_t first = task % strips * kStrip;
    body(Part{task / strips * sequence, sequence, first, std::min(kStrip, channels - first)}, task / strips);
  });
}

/// `count` rows of the strip from token `time`.
Part rows_of(const Part& strip, std::int64_t time, std::int64_t count) {
  return {strip.row + time, count, strip.col, strip.cols};
}

void convolve_strip(const CausalConvForward& op, const Part& strip) {
  thread_local Buffer buffer;
  const std::int64_t kernel = op.kernel;
  Scratch scratch(buffer, Tile::size(kernel - 1) + (kernel + 1 + kTile) * kStrip);
  const Tile x(scratch, kernel - 1);
  float* weights = scratch.take(kernel * kStrip);
  float* bias = scratch.take(kStrip);
  float* out = scratch.take(kTile * kStrip);
  load_weights(op.weight, kernel, strip, weights);
  load_weights(op.bias, 1, strip, bias);
  for (std::int64_t t = 0; t < op.sequence; t += kTile) {
    const std::int64_t count = std::min(kTile, op.sequence - t);
    load_rows(op.x, rows_of(strip, t, count), 1, x.rows(), kStrip);
    slide(x.with_history(), weights, kernel, bias, count, out);
    for (std::int64_t i = 0; i < count * kStrip; ++i) out[i] = silu(out[i]);
    store_rows(out, kStrip, op.out, rows_of(strip, t, count));
    x.move_on(count);
  }
}

/// One thread's scratch of a backward task.
struct StripMatrices {
  Tile x;
  Tile dsum;                   // gradient of what silu is taken of
  float *weights, *backwards;  // [kernel, kStrip], by time and against it
  float *bias, *zeros;         // [kStrip]
  float* out;                  // [kTile, kStrip]

  static std::int64_t size(std::int64_t kernel) {
    return 2 * Tile::size(kernel - 1) + (2 * kernel + 2 + kTile) * kStrip;
  }

  StripMatrices(Scratch scratch, std::int64_t kernel)
      : x(scratch, kernel - 1),
        dsum(scratch, kernel - 1),
        weights(scratch.take(kernel * kStrip)),
        backwards(scratch.take(kernel * kStrip)),
        bias(scratch.take(kStrip)),
        zeros(scratch.take(kStrip)),
        out(scratch.take(kTile * kStrip)) {}
};

/// dx of the `count` tokens that end kernel - 1 before the end of the tile: a token's dx is complete kernel -
/// 1 tokens later. `end` is the time at the end of the tile.
void store_complete(const CausalConvBackward& op, const Part& strip, const StripMatrices& m, std::int64_t end,
                    std::int64_t count) {
  const std::int64_t first = end - (op.kernel - 1) - count;
  const std::int64_t before = std::min(count, std::max<std::int64_t>(0, -first));
  slide(m.dsum.with_history(), m.backwards, op.kernel, m.zeros, count, m.out);
  store_rows(m.out + before * kStrip, kStrip, op.dx, rows_of(strip, first + before, count - before));
  m.dsum.move_on(count);
}

/// `sums` gets the gradients of the strip's weights and bias: [kernel + 1, kStrip].
void differentiate_strip(const CausalConvBackward& op, const Part& strip, float* sums) {
  thread_local Buffer buffer;
  const std::int64_t kernel = op.kernel;
  const StripMatrices m(Scratch(buffer, StripMatrices::size(kernel)), kernel);
  load_weights(op.weight, kernel, strip, m.weights);
  load_weights(op.bias, 1, strip, m.bias);
  std::fill_n(m.zeros, kStrip, 0.0f);
  for (std::int64_t j = 0; j < kernel; ++j)
    std::copy_n(m.weights + j * kStrip, kStrip, m.backwards + (kernel - 1 - j) * kStrip);
  std::fill_n(sums, (kernel + 1) * kStrip, 0.0f);
  for (std::int64_t t = 0; t < op.sequence; t += kTile) {
    const std::int64_t count = std::min(kTile, op.sequence - t);
    float* dsum = m.dsum.rows();
    load_rows(op.x, rows_of(strip, t, count), 1, m.x.rows(), kStrip);
    load_rows(op.dout, rows_of(strip, t, count), 1, dsum, kStrip);
    slide(m.x.with_history(), m.weights, kernel, m.bias, count, m.out);
    for (std::int64_t i = 0; i < count * kStrip; ++i) dsum[i] *= silu_gradient(m.out[i]);
    sum_weight_gradients(dsum, m.x.with_history(), kernel, count, sums);
    m.x.move_on(count);
    store_complete(op, strip, m, t + count, count);
  }
  // Nothing comes after the sequence.
  for (std::int64_t left = kernel - 1; left > 0; left -= kTile) {
    const std::int64_t count = std::min(kTile, left);
    std::fill_n(m.dsum.rows(), count * kStrip, 0.0f);
    store_complete(op, strip, m, op.sequence + kernel - 1 - left + count, count);
  }
}

}  // namespace

void causal_conv(Threads& threads, const CausalConvForward& op) {
  check(op);
  for_each_strip(threads, op.batch, op.sequence, op.x.cols,
                 [&](const Part& strip, std::int64_t /*batch*/) { convolve_strip(op, strip); });
}

void causal_conv(Threads& threads, const CausalConvBackward& op) {
  check(op);
  thread_local Buffer buffer;
  const std::int64_t channels = op.x.cols;
  const std::int64_t strips = ceil_div(channels, kStrip);
  const std::int64_t strip_size = (op.kernel + 1) * kStrip;
  float* sums = workspace(buffer, op.batch * strips * strip_size);
  for_each_strip(threads, op.batch, op.sequence, channels, [&](const Part& strip, std::int64_t batch) {
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
