// SPDX-License-Identifier: Apache-2.0
#pragma once
// The same microbatches at several precisions, beside the reference that nothing is quantized in.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tetrad/eval/estimate.h"
#include "tetrad/eval/gradients.h"
#include "tetrad/model/decoder.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

struct ProbeData {
  std::vector<Microbatch> training;
  std::vector<Microbatch> heldout;  //!< as many, for the losses; empty: those of the training tokens
};

/// What every probe has in common. `ranks` share the microbatches: each has the same weights and data, and
/// all get the same results, which are those of one.
struct ProbeSetup {
  Communicator& ranks;
  Decoder& decoder;
  const ProbeData& data;
  Pass pass;                         //!< seed, step and progress: where in the run it is
  std::function<void()> after_pass;  //!< of this rank; may throw to stop
};

/// The gradient of one microbatch against the reference's.
struct ProbeSample {
  double gradient_error = 0;  //!< |g - g_ref|² / |g_ref|² over all parameters
  double cosine = 1;
};

/// What one recipe computes.
struct ProbedRecipe {
  std::vector<ProbeSample> samples;  //!< by microbatch
  std::vector<double> losses;        //!< by sequence, in nats: differences are paired by token
};

struct ProbeResults {
  std::vector<double> reference_losses;  //!< by sequence
  std::vector<ProbedRecipe> recipes;
};

/// A recipe changes nothing but itself: weights, tokens and random bits are the same for all. Throws Error
/// (bad input) if something is not finite.
ProbeResults probe(const ProbeSetup& setup, const Recipe& reference, std::span<const Recipe> recipes);

/// What the quantizers of every layer and operand do on all microbatches together, every element counted.
std::vector<OperandStats> quantizer_statistics(const ProbeSetup& setup, const Recipe& recipe);

/// The mean of one figure of the samples.
Estimate estimate(std::span<const ProbeSample> samples, double ProbeSample::*figure);
/// The mean of how much less it is in `after` than in `before`, microbatch by microbatch.
Estimate estimate_gain(std::span<const ProbeSample> before, std::span<const ProbeSample> after,
                       double ProbeSample::*figure);

}  // namespace tetrad
