// SPDX-License-Identifier: Apache-2.0
#pragma once
// What curves do not show: how far an arm's gradients and losses are from the reference's on the same weights
// and data, and whether a run of the arm survives bad numbers and an interruption.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tetrad/compare/runner.h"
#include "tetrad/eval/estimate.h"

namespace tetrad {

struct GradientDistance {
  std::string parameter;  //!< empty: all of them as one vector
  double cosine = 0;
  double norm_ratio = 0;  //!< the arm's norm over the reference's
};

/// Gradients of one microbatch of the training data for the weights in `checkpoint`, at each arm's precision
/// at the beginning of training; the first configuration is the reference. By arm: all parameters as one,
/// then each matrix. Ranks share the arms.
std::vector<std::vector<GradientDistance>> compare_gradients(const std::filesystem::path& checkpoint,
                                                             std::span<const Config> arms,
                                                             const RunContext& context);

/// The loss of an arm's forward pass beside the reference's, on the same weights and the same tokens.
struct LossDistance {
  double loss = 0;      //!< in nats
  Estimate difference;  //!< to the reference's loss, paired by token; its error is that of the sequences
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
};

/// Losses of held-out tokens for the weights in `checkpoint`, at each arm's precision at the beginning of
/// training; the first configuration is the reference. By arm; nothing if no tokens are held out. Ranks share
/// the arms.
std::vector<LossDistance> compare_losses(const std::filesystem::path& checkpoint,
                                         std::span<const Config> arms, const RunContext& context);

struct Recovery {
  bool nan_ok = false;
  std::string nan;  //!< what happened after a loss that is no number
  bool resume_ok = false;
  std::string resume;  //!< whether a run that went on from a checkpoint ended with the same bytes
};

/// Trains the first steps of a run, from a checkpoint on once more, and with a bad step, in `folder`, which
/// is removed afterwards. Nothing: stopped by a signal. The files are compared on the first rank, whose
/// result it is.
std::optional<Recovery> test_recovery(Config config, const std::filesystem::path& folder,
                                      const RunContext& context);

}  // namespace tetrad
