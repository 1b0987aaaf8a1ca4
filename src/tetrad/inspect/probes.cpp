// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/probes.h"

#include <cmath>
#include <map>
#include <numeric>
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

double heldout_loss(const ProbeSetup& setup, const Recipe& recipe, std::size_t microbatch) {
  const Microbatch& batch = setup.data.heldout[microbatch];
  std::vector<float> losses(batch.inputs.size());
  Pass pass = pass_of(setup, recipe, microbatch);
  setup.decoder.evaluate(pass, batch.inputs, batch.targets, losses, batch.document_starts);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

/// Leaves the gradients in the decoder; returns the loss.
double compute(const ProbeSetup& setup, const Recipe& recipe, std::size_t microbatch) {
  const double heldout = setup.data.heldout.empty() ? 0 : heldout_loss(setup, recipe, microbatch);
  Pass pass = pass_of(setup, recipe, microbatch);
  const double training = differentiate(setup.decoder, pass, setup.data.training[microbatch]);
  if (setup.after_pass) setup.after_pass();
  return setup.data.heldout.empty() ? training : heldout;
}

}  // namespace

ProbeResults probe(const ProbeSetup& setup, const Recipe& reference, std::span<const Recipe> recipes) {
  ProbeResults results;
  results.samples.resize(recipes.size());
  // Microbatch by microbatch, so that one gradient is held for reference and not one for each.
  for (std::size_t i = 0; i < setup.data.training.size(); ++i) {
    const double reference_loss = compute(setup, reference, i);
    const Gradients gradients = download_gradients(setup.decoder);
    results.reference_losses.push_back(reference_loss);
    for (std::size_t k = 0; k < recipes.size(); ++k) {
      const double loss = compute(setup, recipes[k], i) - reference_loss;
      const GradientProducts products = sum(products_with(gradients, setup.decoder));
      const ProbeSample sample{loss, products.relative_error(), products.cosine()};
      TETRAD_CHECK(
          std::isfinite(sample.loss) && std::isfinite(sample.gradient_error) && std::isfinite(sample.cosine),
          "the loss or the gradient of microbatch {} is not finite, or zero: these weights cannot be "
          "inspected on this data",
          i + 1);
      results.samples[k].push_back(sample);
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

Estimate estimate(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count),
          values.size() < kFewestMicrobatches};
}

Estimate estimate(const ProbeSamples& samples, double ProbeSample::*figure) {
  std::vector<double> values;
  for (const ProbeSample& sample : samples) values.push_back(sample.*figure);
  return estimate(values);
}

Estimate estimate_gain(const ProbeSamples& before, const ProbeSamples& after, double ProbeSample::*figure) {
  std::vector<double> values;
  for (std::size_t i = 0; i < before.size(); ++i) values.push_back(before[i].*figure - after[i].*figure);
  return estimate(values);
}

}  // namespace tetrad
