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

/// The taps of a kernel that count: begin … end - 1.
struct Taps {
  std::int64_t begin, end;
};

/// One sequence is one document: what lies outside it is zero, and all taps count.
struct OneDocument {
  std::int64_t kernel;

  Taps backwards_from(std::int64_t /*time*/) const { return {0, kernel}; }
  Taps forwards_from(std::int64_t /*time*/) const { return {0, kernel}; }
};

/// A sequence of several documents.
struct ManyDocuments {
  std::int64_t kernel, sequence;
  const std::int32_t* starts;  //!< of the sequence's tokens

  /// Taps lie at time - kernel + 1 … time.
  Taps backwards_from(std::int64_t time) const {
    return {std::max<std::int64_t>(0, kernel - 1 - (time - starts[time])), kernel};
  }
  /// Taps lie at time … time + kernel - 1.
  Taps forwards_from(std::int64_t time) const {
    std::int64_t end = 0;
    while (end < kernel && time >= 0 && time + end < sequence && starts[time + end] <= time) ++end;
    return {0, end};
  }
};

/// Calls body with what the strip's sequence has of documents.
template <typename Op, typename Body>
void with_documents(const Op& op, const Part& strip, const Body& body) {
  if (op.document_starts == nullptr)
    body(OneDocument{op.kernel});
  else
    body(ManyDocuments{op.kernel, op.sequence, op.document_starts + strip.row});
}

/// out[r] = bias + sum over j in taps_of(r) of weights[j] * in[r + j], for `rows` rows.
template <typename TapsOf>
void slide(const float* in, const float* weights, const TapsOf& taps_of, const float* bias, std::int64_t rows,
           float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Taps taps = taps_of(r);
    for (std::int64_t c = 0; c < kStrip; c += kNativeLanes) {
      F32xN sum = load_native(bias + c);
      for (std::int64_t j = taps.begin; j < taps.end; ++j)
        sum = fused(load_native(weights + j * kStrip + c), load_native(in + (r + j) * kStrip + c), sum);
      store_native(sum, out + r * kStrip + c);
    }
  }
}

/// sums[j] += sum of dsum[r] * x[r + j] over the rows of which taps_of(r) has j, and sums[kernel] += sum over
/// all rows of dsum[r].
template <typename TapsOf>
void sum_weight_gradients(const float* dsum, const float* x, std::int64_t kernel, const TapsOf& taps_of,
                          std::int64_t rows, float* sums) {
  for (std::int64_t c = 0; c < kStrip; c += kNativeLanes) {
    for (std::int64_t j = 0; j < kernel; ++j) {
      F32xN sum = load_native(sums + j * kStrip + c);
      for (std::int64_t r = 0; r < rows; ++r)
        if (j >= taps_of(r).begin)
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

template <typename Documents>
void convolve_strip(const CausalConvForward& op, const Part& strip, const Documents& documents) {
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
    const auto taps_of = [&](std::int64_t r) { return documents.backwards_from(t + r); };
    slide(x.with_history(), weights, taps_of, bias, count, out);
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
template <typename Documents>
void store_complete(const CausalConvBackward& op, const Part& strip, const Documents& documents,
                    const StripMatrices& m, std::int64_t end, std::int64_t count) {
  const std::int64_t first = end - (op.kernel - 1) - count;
  const std::int64_t before = std::min(count, std::max<std::int64_t>(0, -first));
  const auto taps_of = [&](std::int64_t r) { return documents.forwards_from(first + r); };
  slide(m.dsum.with_history(), m.backwards, taps_of, m.zeros, count, m.out);
  store_rows(m.out + before * kStrip, kStrip, op.dx, rows_of(strip, first + before, count - before));
  m.dsum.move_on(count);
}

/// `sums` gets the gradients of the strip's weights and bias: [kernel + 1, kStrip].
template <typename Documents>
void differentiate_strip(const CausalConvBackward& op, const Part& strip, const Documents& documents,
                         float* sums) {
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
    const auto taps_of = [&](std::int64_t r) { return documents.backwards_from(t + r); };
    slide(m.x.with_history(), m.weights, taps_of, m.bias, count, m.out);
    for (std::int64_t i = 0; i < count * kStrip; ++i) dsum[i] *= silu_gradient(m.out[i]);
    sum_weight_gradients(dsum, m.x.with_history(), kernel, taps_of, count, sums);
    m.x.move_on(count);
    store_complete(op, strip, documents, m, t + count, count);
  }
  // Nothing comes after the sequence.
  for (std::int64_t left = kernel - 1; left > 0; left -= kTile) {
    const std::int64_t count = std::min(kTile, left);
    std::fill_n(m.dsum.rows(), count * kStrip, 0.0f);
    store_complete(op, strip, documents, m, op.sequence + kernel - 1 - left + count, count);
  }
}

}  // namespace

void causal_conv(Threads& threads, const CausalConvForward& op) {
  check(op);
  for_each_strip(threads, op.batch, op.sequence, op.x.cols, [&](const Part& strip, std::int64_t /*batch*/) {
    with_documents(op, strip, [&](const auto& documents) { convolve_strip(op, strip, documents); });
  });
}

void causal_conv(Threads& threads, const CausalConvBackward& op) {
  check(op);
  thread_local Buffer buffer;
  const std::int64_t channels = op.x.cols;
  const std::int64_t strips = ceil_div(channels, kStrip);
  const std::int64_t strip_size = (op.kernel + 1) * kStrip;
  float* sums = workspace(buffer, op.batch * strips * strip_size);
  for_each_strip(threads, op.batch, op.sequence, channels, [&](const Part& strip, std::int64_t batch) {
    float* strip_sums = sums + (batch * strips + strip.col / kStrip) * strip_size;
    with_documents(op, strip,
                   [&](const auto& documents) { differentiate_strip(op, strip, documents, strip_sums); });
  });
  for (std::int64_t batch = 0; batch < op.batch; ++batch)
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const float* sum = sums + (batch * strips + channel / kStrip) * strip_size + channel % kStrip;
      for (std::int64_t j = 0; j < op.kernel; ++j) op.dweight[channel * op.kernel + j] += sum[j * kStrip];
      op.dbias[channel] += sum[op.kernel * kStrip];
    }
}

}  // namespace tetrad::cpu
