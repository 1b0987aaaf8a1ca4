// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/probes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/parallel/agreement.h"

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

/// Numbers that ranks tell each other, in and out in the same order.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(std::vector<double> numbers) : numbers_(std::move(numbers)) {}

  void put(double number) { numbers_.push_back(number); }
  void put(std::span<const double> numbers) {
    put(static_cast<double>(numbers.size()));
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }
  template <typename T>
  void get(T& number) {
    number = static_cast<T>(numbers_.at(next_++));
  }
  void get_onto(std::vector<double>& list) {
    std::size_t count = 0;
    for (get(count); count > 0; --count) get(list.emplace_back());
  }
  bool at_end() const { return next_ == numbers_.size(); }
  std::vector<double> take() { return std::move(numbers_); }

 private:
  std::vector<double> numbers_;
  std::size_t next_ = 0;
};

/// Counts are below 2^53, so that a double holds them.
template <typename Stats, typename Visit>
void for_each_figure(Stats& stats, const Visit& visit) {
  visit(stats.amax), visit(stats.non_finite), visit(stats.blocks), visit(stats.zero_scale_blocks);
  visit(stats.measured), visit(stats.flushed), visit(stats.saturated);
  visit(stats.signal), visit(stats.noise), visit(stats.max_error);
}

/// The losses and samples of one microbatch.
std::vector<double> probe_one(const ProbeSetup& setup, const Recipe& reference,
                              std::span<const Recipe> recipes, std::size_t microbatch, Gradients& kept) {
  Numbers found;
  std::vector<double> losses;
  compute(setup, reference, microbatch, losses);
  found.put(losses);
  keep_gradients(setup.decoder, kept);
  for (const Recipe& recipe : recipes) {
    losses.clear();
    compute(setup, recipe, microbatch, losses);
    found.put(losses);
    const DeviationSums sums = sum(deviations(setup.decoder, kept));
    const ProbeSample sample{relative_error(sums), cosine(sums)};
    TETRAD_CHECK(
        std::isfinite(losses.back()) && std::isfinite(sample.gradient_error) && std::isfinite(sample.cosine),
        "the loss or the gradient of microbatch {} is not finite, or zero: these weights cannot "
        "be inspected on this data",
        microbatch + 1);
    found.put(sample.gradient_error);
    found.put(sample.cosine);
  }
  return found.take();
}

}  // namespace

ProbeResults probe(const ProbeSetup& setup, const Recipe& reference, std::span<const Recipe> recipes) {
  ProbeResults results;
  results.recipes.resize(recipes.size());
  Gradients kept = make_gradients(setup.decoder);
  // Microbatch by microbatch, so that one gradient is held for reference and not one for each.
  const auto of_microbatch = [&](std::int64_t i) {
    return probe_one(setup, reference, recipes, static_cast<std::size_t>(i), kept);
  };
  for (std::vector<double>& list : dealt_lists(setup.ranks, std::ssize(setup.data.training), of_microbatch)) {
    Numbers found(std::move(list));
    found.get_onto(results.reference_losses);
    for (ProbedRecipe& probed : results.recipes) {
      found.get_onto(probed.losses);
      ProbeSample& sample = probed.samples.emplace_back();
      found.get(sample.gradient_error);
      found.get(sample.cosine);
    }
  }
  return results;
}

std::vector<OperandStats> quantizer_statistics(const ProbeSetup& setup, const Recipe& recipe) {
  const std::vector<Linear*> linears = setup.decoder.linears();
  setup.decoder.weights_changed();  // their codes are made once: now, to be counted
  if (setup.ranks.rank() > 0) {     // … with the first microbatch, which is the first rank's
    Pass pass = pass_of(setup, recipe, 0);
    differentiate(setup.decoder, pass, setup.data.training[0]);
  }
  const auto of_microbatch = [&](std::int64_t i) {
    const auto microbatch = static_cast<std::size_t>(i);
    Pass pass = pass_of(setup, recipe, microbatch);
    pass.telemetry = true;
    pass.every_element = true;
    differentiate(setup.decoder, pass, setup.data.training[microbatch]);
    if (setup.after_pass) setup.after_pass();
    Numbers found;
    for (const OperandStats& one : pass.stats) {
      const auto layer = std::ranges::find(linears, one.layer, &Linear::name) - linears.begin();
      found.put(static_cast<double>(layer));
      found.put(static_cast<double>(one.operand));
      for_each_figure(one.stats, [&](auto figure) { found.put(static_cast<double>(figure)); });
    }
    return found.take();
  };
  std::map<std::pair<std::size_t, Operand>, QuantStats> merged;
  for (std::vector<double>& list : dealt_lists(setup.ranks, std::ssize(setup.data.training), of_microbatch)) {
    Numbers found(std::move(list));
    while (!found.at_end()) {
      std::pair<std::size_t, Operand> place;
      found.get(place.first);
      int operand = 0;
      found.get(operand);
      place.second = static_cast<Operand>(operand);
      QuantStats stats;
      for_each_figure(stats, [&](auto& figure) { found.get(figure); });
      merged[place].merge(stats);
    }
  }
  std::vector<OperandStats> result;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const bool shared = recipe.at(linears[i]->layer_id(), setup.pass.progress).weight_codes_shared();
    for (int k = 0; k < kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      const Operand made_as = shared && operand == Operand::dgrad_w ? Operand::fprop_w : operand;
      const auto found = merged.find({i, made_as});
      if (found != merged.end()) result.push_back({linears[i]->name(), operand, found->second});
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
