// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/inspection.h"

#include <algorithm>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/eval/evaluation.h"
#include "tetrad/eval/gradient_noise.h"
#include "tetrad/parallel/agreement.h"

namespace tetrad {
namespace {

constexpr double kBf16Bytes = 2;

/// Bytes of a weight in a file, with its share of the block's scale.
double bytes_per_value(const std::optional<QuantSpec>& spec) {
  if (!spec) return kBf16Bytes;
  const auto block = static_cast<double>(std::max<std::int64_t>(1, spec->block.cols));
  switch (spec->format) {
    case Format::fp8: {
      const double values = spec->block.is_whole() ? 0 : block * static_cast<double>(spec->block.rows);
      return values == 0 ? 1 : 1 + sizeof(float) / values;
    }
    default:
      return 0.5 + 1 / block;  // servers store scales of 16x16 blocks for each of their rows
  }
}

class Inspector {
 public:
  Inspector(Communicator& ranks, Decoder& decoder, const PrecisionConfig& precision, const ProbeData& data,
            const Pass& pass, const InspectOptions& options)
      : precision_(precision),
        options_(options),
        blocks_(decoder.config().blocks()),
        setup_{ranks, decoder, data, pass, [this] { note_pass(); }},
        layers_(make_units(decoder, false)),
        units_(make_units(decoder, options.by_block)),
        reference_(unquantized(precision), blocks_),
        nothing_(at_levels(std::vector<Level>(layers_.size(), Level::quantized))),
        today_(precision, blocks_) {
    const Linear* first = decoder.linears().at(0);
    base_ = nothing_.at(first->layer_id(), pass.progress);
    together(ranks, [&] {
      TETRAD_CHECK(
          is_quantized(base_),
          "there is nothing to inspect: at {:.0f} % of its tokens this run is in BF16; name the recipe "
          "that it could be in (--precision nvfp4)",
          100 * pass.progress);
    });
  }

  Inspection run() {
    for (const Linear* linear : setup_.decoder.linears())
      levels_of_today_.push_back(level_of(precision_at(today_, *linear), base_));
    plan_probes();
    const std::int64_t batches =
        ceil_div(std::ssize(setup_.data.training), setup_.ranks.size());               // of the first rank
    const std::int64_t of_noise = can_measure_noise() ? 3 * (1 + options_.draws) : 0;  // three sets
    total_ =
        batches * (static_cast<std::int64_t>(probes_.size()) + 4 +  // statistics, two references, the set
                   of_noise);
    take_statistics();
    const ProbeResults results = probe(setup_, reference_, probes_);
    result_.reference_loss = estimate(results.reference_losses).mean;
    result_.sequences = results.reference_losses.size();
    result_.nothing = describe_set(nothing_, results.recipes[kNothing], results.reference_losses);
    result_.today = describe_set(today_, results.recipes[kToday], results.reference_losses);
    report_units(results);
    report_noise();
    suggest(results.recipes[kToday]);
    return std::move(result_);
  }

 private:
  static constexpr std::size_t kNothing = 0;
  static constexpr std::size_t kToday = 1;

  /// Where the probes of a unit are.
  struct ProbesOfUnit {
    std::size_t bf16 = 0;
    std::optional<std::size_t> fp8;
    std::optional<std::size_t> in_todays_set;
  };

  /// `levels` by layer.
  Recipe at_levels(std::span<const Level> levels) const {
    PrecisionConfig config = precision_;
    config.high_precision = keep(layers_, levels);
    return {std::move(config), blocks_};
  }

  void note_pass() {
    if (options_.progress) options_.progress(++done_, total_);
  }

  LinearPrecision precision_at(const Recipe& recipe, const Linear& linear) const {
    return recipe.at(linear.layer_id(), setup_.pass.progress);
  }

  /// The levels of a unit's layers.
  std::span<Level> of_unit(std::vector<Level>& levels, std::size_t unit) const {
    return std::span(levels).subspan(units_[unit].first, units_[unit].layers.size());
  }

  std::size_t add_probe(const Recipe& recipe) {
    probes_.push_back(recipe);
    return probes_.size() - 1;
  }

  void plan_probes() {
    add_probe(nothing_);
    add_probe(today_);
    std::vector<Level> levels(layers_.size(), Level::quantized);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      ProbesOfUnit& probes = probes_of_.emplace_back();
      std::ranges::fill(of_unit(levels, i), Level::bf16);
      probes.bf16 = add_probe(at_levels(levels));
      std::ranges::fill(of_unit(levels, i), Level::fp8);
      if (has_four_bits(base_)) probes.fp8 = add_probe(at_levels(levels));
      std::ranges::fill(of_unit(levels, i), Level::quantized);
      if (level_today(i) == Level::quantized) continue;
      std::vector<Level> without = levels_of_today_;
      std::ranges::fill(of_unit(without, i), Level::quantized);
      probes.in_todays_set = add_probe(at_levels(without));
    }
  }

  /// A block is kept if all of it is.
  Level level_today(std::size_t unit) { return std::ranges::min(of_unit(levels_of_today_, unit)); }

  void take_statistics() {
    for (OperandStats& stats : quantizer_statistics(setup_, nothing_)) {
      const auto layer = std::ranges::find(layers_, stats.layer, &Unit::name) - layers_.begin();
      result_.worst.push_back({std::move(stats), levels_of_today_[static_cast<std::size_t>(layer)]});
    }
    std::ranges::stable_sort(result_.worst, std::ranges::less(),
                             [](const OperandReport& report) { return report.stats.stats.sqnr_db(); });
    for (const Unit& layer : layers_) result_.layers.push_back(layer.name);
    const Recipe::Names names = nothing_.names_at(setup_.pass.progress);
    result_.forward = names.forward;
    result_.backward = names.backward;
  }

  SetReport describe_set(const Recipe& recipe, const ProbedRecipe& probed,
                         std::span<const double> reference_losses) const {
    SetReport report;
    report.kept = recipe.config().high_precision;
    report.gradient_error = estimate(probed.samples, &ProbeSample::gradient_error);
    report.loss = estimate_difference(probed.losses, reference_losses);
    report.cosine = estimate(probed.samples, &ProbeSample::cosine);
    double all = 0;
    for (const Linear* linear : setup_.decoder.linears()) {
      const auto weights = static_cast<double>(linear->out_features() * linear->in_features());
      const LinearPrecision precision = precision_at(recipe, *linear);
      const Level level = level_of(precision, base_);
      all += weights;
      if (level == Level::bf16) report.bf16_share += weights;
      if (level == Level::fp8) report.fp8_share += weights;
      report.weight_bytes += weights * bytes_per_value(precision[Operand::fprop_w]);
    }
    report.bf16_share /= all;
    report.fp8_share /= all;
    return report;
  }

  static Gain gain(const ProbedRecipe& before, const ProbedRecipe& after) {
    return {estimate_gain(before.samples, after.samples, &ProbeSample::gradient_error),
            estimate_difference(before.losses, after.losses)};
  }

  bool can_measure_noise() const {
    return without_backward_quantizers(nothing_, setup_.decoder, setup_.pass.progress).has_value();
  }

  /// By microbatch and parameter; nothing if it cannot be measured.
  std::optional<std::vector<std::vector<DrawSums>>> noise_of(const Recipe& recipe) {
    const std::optional<Recipe> reference =
        without_backward_quantizers(recipe, setup_.decoder, setup_.pass.progress);
    if (!reference) return std::nullopt;
    return measure_gradient_noise(setup_.decoder, {setup_.ranks, recipe, *reference, setup_.data.training,
                                                   options_.draws, setup_.pass, setup_.after_pass});
  }

  /// Of those parameters for which `counts(name)`, as one vector.
  template <typename Counts>
  NoiseReport describe_noise(const std::vector<std::vector<DrawSums>>& sums, const Counts& counts) const {
    std::vector<double> bias;
    std::vector<double> variance;
    for (const std::vector<DrawSums>& of_microbatch : sums) {
      DrawSums all;
      for (std::size_t i = 0; i < of_microbatch.size(); ++i)
        if (counts(setup_.decoder.parameters()[i]->name)) all.add(of_microbatch[i]);
      const GradientNoise noise = all.noise(options_.draws);
      bias.push_back(noise.bias);
      variance.push_back(noise.variance);
    }
    return {estimate(bias), estimate(variance)};
  }
  NoiseReport describe_noise(const std::vector<std::vector<DrawSums>>& sums) const {
    return describe_noise(sums, [](const std::string&) { return true; });
  }

  void report_noise() {
    if (const auto today = noise_of(today_)) result_.today.backward = describe_noise(*today);
    const auto nothing = noise_of(nothing_);
    if (!nothing) return;
    result_.nothing.backward = describe_noise(*nothing);
    for (UnitReport& report : result_.units)
      report.backward = describe_noise(*nothing, [&](const std::string& parameter) {
        return std::ranges::any_of(report.unit.layers,
                                   [&](const std::string& layer) { return parameter == layer + ".weight"; });
      });
  }

  void report_units(const ProbeResults& results) {
    const ProbedRecipe& nothing = results.recipes[kNothing];
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const ProbesOfUnit& probes = probes_of_[i];
      UnitReport report;
      report.unit = units_[i];
      report.now = level_today(i);
      report.bf16 = gain(nothing, results.recipes[probes.bf16]);
      if (probes.fp8) report.fp8 = gain(nothing, results.recipes[*probes.fp8]);
      if (probes.in_todays_set)
        report.in_todays_set = gain(results.recipes[*probes.in_todays_set], results.recipes[kToday]);
      report.bf16_bytes = larger_by(i, probes.bf16);
      report.fp8_bytes = probes.fp8 ? larger_by(i, *probes.fp8) : 0;
      result_.units.push_back(std::move(report));
    }
  }

  /// Bytes of a unit's weights at the precision of a probe, more than where nothing is kept.
  double larger_by(std::size_t unit, std::size_t probe) const {
    const LayerId layer{units_[unit].layers.front(), units_[unit].block};
    const LinearPrecision kept = probes_[probe].at(layer, setup_.pass.progress);
    return static_cast<double>(units_[unit].weights) *
           (bytes_per_value(kept[Operand::fprop_w]) - bytes_per_value(base_[Operand::fprop_w]));
  }

  /// The choice rests on units measured alone; so all of it is measured together before it is reported.
  void suggest(const ProbedRecipe& today) {
    std::vector<Candidate> candidates;
    for (const UnitReport& report : result_.units)
      candidates.push_back({report.unit.share, report.bf16, report.fp8});
    const std::vector<Level> levels = choose(candidates, options_.budget);
    std::vector<Level> by_layer(layers_.size());
    for (std::size_t i = 0; i < levels.size(); ++i) {
      result_.units[i].suggested = levels[i];
      std::ranges::fill(of_unit(by_layer, i), levels[i]);
    }
    const std::vector<Recipe> recipe = {at_levels(by_layer)};
    const ProbeResults results = probe(setup_, reference_, recipe);
    result_.suggested = describe_set(recipe[0], results.recipes[0], results.reference_losses);
    if (const auto noise = noise_of(recipe[0])) result_.suggested.backward = describe_noise(*noise);
    result_.gain = gain(today, results.recipes[0]);
    result_.verdict = judge(result_.gain, result_.suggested.cost(), result_.today.cost());
  }

  const PrecisionConfig& precision_;
  const InspectOptions& options_;
  std::int64_t blocks_;
  ProbeSetup setup_;
  std::vector<Unit> layers_;
  std::vector<Unit> units_;             //!< the same, or blocks
  Recipe reference_;                    //!< nothing is quantized
  Recipe nothing_;                      //!< nothing is kept
  Recipe today_;                        //!< what the configuration says
  LinearPrecision base_;                //!< precision of every layer where nothing is kept
  std::vector<Level> levels_of_today_;  //!< by layer
  std::vector<Recipe> probes_;
  std::vector<ProbesOfUnit> probes_of_;
  std::int64_t done_ = 0, total_ = 0;
  Inspection result_;
};

}  // namespace

Inspection inspect(Communicator& ranks, Decoder& decoder, const PrecisionConfig& precision,
                   const ProbeData& data, const Pass& pass, const InspectOptions& options) {
  TETRAD_CHECK(data.training.size() >= 2, "a standard error needs at least two microbatches");
  TETRAD_CHECK(options.draws >= 2, "bias and variance cannot be told apart with fewer than two draws");
  return Inspector(ranks, decoder, precision, data, pass, options).run();
}

}  // namespace tetrad
