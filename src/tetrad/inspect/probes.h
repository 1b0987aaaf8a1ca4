// SPDX-License-Identifier: Apache-2.0
#pragma once
// The same microbatches at several precisions, beside the reference that nothing is quantized in.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tetrad/eval/gradients.h"
#include "tetrad/model/decoder.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

struct ProbeData {
  std::vector<Microbatch> training;
  std::vector<Microbatch> heldout;  //!< as many, for the losses; empty: those of the training tokens
};

/// What every probe has in common.
struct ProbeSetup {
  Decoder& decoder;
  const ProbeData& data;
  Pass pass;                         //!< seed, step and progress: where in the run it is
  std::function<void()> after_pass;  //!< may throw to stop
};

/// One microbatch against the reference.
struct ProbeSample {
  double loss = 0;            //!< excess, in nats
  double gradient_error = 0;  //!< |g - g_ref|² / |g_ref|² over all parameters
  double cosine = 1;
};
using ProbeSamples = std::vector<ProbeSample>;  //!< by microbatch

struct ProbeResults {
  std::vector<double> reference_losses;  //!< by microbatch
  std::vector<ProbeSamples> samples;     //!< by recipe
};

/// A recipe changes nothing but itself: weights, tokens and random bits are the same for all. Throws Error
/// (bad input) if something is not finite.
ProbeResults probe(const ProbeSetup& setup, const Recipe& reference, std::span<const Recipe> recipes);

/// What the quantizers of every layer and operand do on all microbatches together, every element counted.
std::vector<OperandStats> quantizer_statistics(const ProbeSetup& setup, const Recipe& recipe);

/// The fewest microbatches whose standard error says anything: that of fewer is mostly chance itself.
inline constexpr std::size_t kFewestMicrobatches = 4;

/// A mean over microbatches.
struct Estimate {
  double mean = 0;
  double error = 0;     //!< standard error
  bool is_few = false;  //!< fewer than kFewestMicrobatches: everything is noise

  /// Two standard errors above 0.
  bool is_above_noise() const { return !is_few && mean > 2 * error; }
  bool is_below_noise() const { return !is_few && -mean > 2 * error; }
  bool is_noise() const { return !is_above_noise() && !is_below_noise(); }
};

Estimate estimate(std::span<const double> values);
/// The mean of one figure of the samples.
Estimate estimate(const ProbeSamples& samples, double ProbeSample::*figure);
/// The mean of how much less it is in `after` than in `before`, microbatch by microbatch.
Estimate estimate_gain(const ProbeSamples& before, const ProbeSamples& after, double ProbeSample::*figure);

}  // namespace tetrad
