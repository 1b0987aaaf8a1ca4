// SPDX-License-Identifier: Apache-2.0
// For a chunk of tokens, the logits of one chunk of the vocabulary after the other: first for the running
// maximum and sum of the softmax, then, if gradients are wanted, once more for its probabilities. A
// vocabulary that is one chunk is computed only once.

#include "tetrad/backend/cpu/loss.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/gemm.h"
#include "tetrad/backend/cpu/math.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/error.h"
#include "tetrad/core/tensor.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kTokens = 512;
constexpr std::int64_t kVocab = 8192;

/// Softmax of one token, as far as its vocabulary has been seen.
struct RunningSoftmax {
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0;  //!< of exp(logit - maximum)
  float target_logit = 0;

  void update(const float* logits, std::int64_t count) {
    float largest = maximum;
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, logits[i]);
    const float part = sum_in_lanes<float>(
        count, [&](std::int64_t i, float s) { return s + fast_exp(logits[i] - largest); });
    sum = sum * fast_exp(maximum - largest) + part;
    maximum = largest;
  }
  float log_sum_exp() const { return maximum + std::log(sum); }
};

/// One chunk of tokens.
class TokenChunk {
 public:
  TokenChunk(Threads& threads, ProductKernel kernel, const CrossEntropy& op, std::int64_t first,
             std::int64_t count, std::span<Buffer, 3> buffers)
      : threads_(threads),
        kernel_(kernel),
        op_(op),
        count_(count),
        hidden_(rows(op.hidden, first, count)),
        targets_(op.targets + first),
        losses_(op.losses + first),
        softmax_(static_cast<std::size_t>(count)),
        logits_(workspace(buffers[0], count * std::min(kVocab, op.head.rows))),
        dlogits_(workspace(buffers[1], count * std::min(kVocab, op.head.rows))),
        dhidden_sum_(workspace(buffers[2], count * op.hidden.cols)),
        first_(first) {}

  void run() {
    for (std::int64_t vocab = 0; vocab < op_.head.rows; vocab += kVocab) see(vocab);
    for (std::int64_t t = 0; t < count_; ++t)
      losses_[t] =
          targets_[t] == CrossEntropy::kIgnore ? 0.0f : state(t).log_sum_exp() - state(t).target_logit;
    if (op_.dhidden.data == nullptr) return;
    for (std::int64_t vocab = 0; vocab < op_.head.rows; vocab += kVocab)
      with_element(op_.hidden.dtype, "cross_entropy", [&]<typename T>(T) { propagate<T>(vocab); });
    with_element(op_.dhidden.dtype, "cross_entropy", [&]<typename T>(T) { write_dhidden<T>(); });
  }

 private:
  RunningSoftmax& state(std::int64_t token) { return softmax_[static_cast<std::size_t>(token)]; }
  std::int64_t vocab_count(std::int64_t vocab) const { return std::min(kVocab, op_.head.rows - vocab); }

  void compute_logits(std::int64_t vocab) {
    const std::int64_t width = vocab_count(vocab);
    gemm(threads_, kernel_, hidden_, rows(op_.head, vocab, width), mutable_view_of(logits_, count_, width),
         Accumulate::no);
  }

  void see(std::int64_t vocab) {
    const std::int64_t width = vocab_count(vocab);
    compute_logits(vocab);
    parallel_ranges(threads_, count_, rows_per_piece(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float* logits = logits_ + t * width;
        state(t).update(logits, width);
        const std::int64_t target = targets_[t] - vocab;
        if (target >= 0 && target < width) state(t).target_logit = logits[target];
      }
    });
  }

  /// d loss / d logit = softmax - [is the target], scaled; then through the two factors of the logits. The
  /// z-loss adds to each softmax 2 z_loss log_sum times itself.
  template <typename T>
  void propagate(std::int64_t vocab) {
    const std::int64_t width = vocab_count(vocab);
    if (op_.head.rows > kVocab) compute_logits(vocab);
    T* dlogits = reinterpret_cast<T*>(dlogits_);
    parallel_ranges(threads_, count_, rows_per_piece(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float* logits = logits_ + t * width;
        T* out = dlogits + t * width;
        const float scale = targets_[t] == CrossEntropy::kIgnore ? 0.0f : op_.gradient_scale;
        const float log_sum = state(t).log_sum_exp();
        const float share = 1.0f + 2.0f * op_.z_loss * log_sum;
        const float share_scale = share * scale;
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i) store(out[i], fast_exp(logits[i] - log_sum) * share_scale);
        const std::int64_t target = targets_[t] - vocab;
        if (target >= 0 && target < width)
          store(out[target], (fast_exp(logits[target] - log_sum) * share - 1.0f) * scale);
      }
    });
    const MatrixView view = view_of(dlogits, count_, width);
    const MatrixView head = rows(op_.head, vocab, width);
    gemm(threads_, kernel_, view, GemmOperand(head).transposed(),
         mutable_view_of(dhidden_sum_, count_, op_.hidden.cols),
         vocab == 0 ? Accumulate::no : Accumulate::yes);
    gemm(threads_, kernel_, GemmOperand(view).transposed(), GemmOperand(hidden_).transposed(),
         mutable_view_of(op_.dhead + vocab * op_.hidden.cols, width, op_.hidden.cols), Accumulate::yes);
  }

  template <typename T>
  void write_dhidden() {
    const std::int64_t width = op_.hidden.cols;
    parallel_ranges(threads_, count_, rows_per_piece(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* out = row_of<T>(op_.dhidden, first_ + t);
        for (std::int64_t i = 0; i < width; ++i) store(out[i], dhidden_sum_[t * width + i]);
      }
    });
  }

  Threads& threads_;
  ProductKernel kernel_;
  const CrossEntropy& op_;
  std::int64_t count_;
  MatrixView hidden_;
  const std::int32_t* targets_;
  float* losses_;
  std::vector<RunningSoftmax> softmax_;
  float* logits_;       //!< [count, one chunk of the vocabulary]
  float* dlogits_;      //!< the same, in the storage type
  float* dhidden_sum_;  //!< [count, width]
  std::int64_t first_;
};

}  // namespace

void cross_entropy(Threads& threads, ProductKernel kernel, const CrossEntropy& op) {
  check(op);
  check_targets({op.targets, static_cast<std::size_t>(op.hidden.rows)}, op.head.rows);
  thread_local Buffer buffers[3];
  for (std::int64_t first = 0; first < op.hidden.rows; first += kTokens)
    TokenChunk(threads, kernel, op, first, std::min(kTokens, op.hidden.rows - first), buffers).run();
}

}  // namespace tetrad::cpu
