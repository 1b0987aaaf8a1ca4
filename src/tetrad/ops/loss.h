// SPDX-License-Identifier: Apache-2.0
#pragma once
// Output head and cross-entropy in one operation, in chunks of tokens and of the vocabulary, so that logits
// exist for one chunk at a time and never as a whole.

#include <cstdint>
#include <span>

#include "tetrad/core/matrix.h"

namespace tetrad {

struct CrossEntropy {
  static constexpr std::int32_t kIgnore = -1;  //!< a target that does not count

  MatrixView hidden;                      //!< [tokens, width], after the last norm
  MatrixView head;                        //!< [vocab, width], BF16 or f32 like `hidden`
  const std::int32_t* targets = nullptr;  //!< [tokens]
  float* losses = nullptr;                //!< [tokens], in nats; 0 where the target is ignored

  /// The backward pass, if `dhidden.data` is not null: d(sum of losses * gradient_scale), where each loss is
  /// increased by z_loss * (log of the sum of exp(logits))², which keeps logits from drifting. `losses` are
  /// without it.
  float gradient_scale = 1;
  MutableMatrixView dhidden;  //!< written
  float* dhead = nullptr;     //!< [vocab, width], added to
  float z_loss = 0;
};

/// Throws Error where views do not fit together. (Targets are not read: they may be on a device.)
void check(const CrossEntropy& op);

/// Throws Error that names the first target that is neither in the vocabulary nor kIgnore. For targets in the
/// program's memory: nobody looks at those on a device again.
void check_targets(std::span<const std::int32_t> targets, std::int64_t vocab);

}  // namespace tetrad
