// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/probes.h"

#include <cmath>
#include <map>
#include <utility>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

Pass pass_of(const ProbeSetup& setup, const Recipe& recipe, std::size_t microbatch) {
  Pass pass = setup.pass;
  pass.recipe = &recipe;
  pass.microbatch = static_cast<std::uint32_t>(microbatch);
  return pass;
}

/// Leaves the gradients in the decoder; appends the loss of each sequence to `losses`.
void compute(const ProbeSetup& setup, const Recipe& recipe, std::size_t microbatch,
             std::vector<double>& losses) {
  Pass pass = pass_of(setup, recipe, microbatch);
  const std::vector<float> training = differentiate(setup.decoder, pass, setup.data.training[microbatch]);
  const std::vector<float> heldout = setup.data.heldout.empty()
                                         ? training
                                         : token_losses(setup.decoder, pass, setup.data.heldout[microbatch]);
  append_sequence_means(heldout, setup.decoder.sequence(), losses);
  if (setup.after_pass) setup.after_pass();
}

std::vector<double> figures(std::span<const ProbeSample> samples, double ProbeSample::*figure) {
  std::vector<double> values;
  for (const ProbeSample& sample : samples) values.push_back(sample.*figure);
  return values;
}

}  // namespace

ProbeResults probe(const ProbeSetup& setup, const Recipe& reference, std::span<const Recipe> recipes) {
  ProbeResults results;
  results.recipes.resize(recipes.size());
  Gradients kept = make_gradients(setup.decoder);
  // Microbatch by microbatch, so that one gradient is held for reference and not one for each.
  for (std::size_t i = 0; i < setup.data.training.size(); ++i) {
    compute(setup, reference, i, results.reference_losses);
    keep_gradients(setup.decoder, kept);
    for (std::size_t k = 0; k < recipes.size(); ++k) {
      ProbedRecipe& probed = results.recipes[k];
      compute(setup, recipes[k], i, probed.losses);
      const DeviationSums sums = sum(deviations(setup.decoder, kept));
      const ProbeSample& sample = probed.samples.emplace_back(relative_error(sums), cosine(sums));
      TETRAD_CHECK(std::isfinite(probed.losses.back()) && std::isfinite(sample.gradient_error) &&
                       std::isfinite(sample.cosine),
                   "the loss or the gradient of microbatch {} is not finite, or zero: these weights cannot "
                   "be inspected on this data",
                   i + 1);
    }
  }
  return results;
}

std::vector<OperandStats> quantizer_statistics(const ProbeSetup& setup, const Recipe& recipe) {
  std::map<std::pair<std::string, Operand>, QuantStats> merged;
  setup.decoder.weights_changed();  // codes of weights are made once: now, to be counted
  for (std::size_t i = 0; i < setup.data.training.size(); ++i) {
    Pass pass = pass_of(setup, recipe, i);
    pass.telemetry = true;
    pass.every_element = true;
    differentiate(setup.decoder, pass, setup.data.training[i]);
    for (const OperandStats& one : pass.stats) merged[{one.layer, one.operand}].merge(one.stats);
    if (setup.after_pass) setup.after_pass();
  }
  std::vector<OperandStats> result;
  for (const Linear* linear : setup.decoder.linears()) {
    const bool shared = recipe.at(linear->layer_id(), setup.pass.progress).weight_codes_shared();
    for (int k = 0; k < kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      const Operand made_as = shared && operand == Operand::dgrad_w ? Operand::fprop_w : operand;
      const auto found = merged.find({linear->name(), made_as});
      if (found != merged.end()) result.push_back({linear->name(), operand, found->second});
    }
  }
  return result;
}

Estimate estimate(std::span<const ProbeSample> samples, double ProbeSample::*figure) {
  return estimate(figures(samples, figure));
}

Estimate estimate_gain(std::span<const ProbeSample> before, std::span<const ProbeSample> after,
                       double ProbeSample::*figure) {
  return estimate_difference(figures(before, figure), figures(after, figure));
}

}  // namespace tetrad
