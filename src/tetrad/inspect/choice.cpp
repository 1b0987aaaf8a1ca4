// SPDX-License-Identifier: Apache-2.0
#include "tetrad/inspect/choice.h"

#include <algorithm>

namespace tetrad {
namespace {

constexpr double kEnoughOfBf16 = 0.9;
constexpr double kRounding = 1e-9;  //!< tolerance for rounding in sums of shares

using Figure = Estimate Gain::*;

/// How a candidate should be kept.
struct Option {
  std::size_t candidate = 0;
  Level level = Level::bf16;
  double cost = 0;
  double rate = 0;         //!< gain for the cost
  bool fp8_helps = false;  //!< if there is not enough left for BF16
};

/// What is worth keeping by this figure, the best for its cost first.
std::vector<Option> options_by(Figure figure, std::span<const Candidate> candidates,
                               std::span<const Level> levels) {
  std::vector<Option> options;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const Estimate& bf16 = candidate.bf16.*figure;
    if (levels[i] != Level::quantized || candidate.bf16.gradient_error.is_few || !bf16.is_above_noise())
      continue;
    const Estimate fp8 = candidate.fp8 ? (*candidate.fp8).*figure : Estimate{};
    const bool fp8_helps = fp8.is_above_noise();
    const bool fp8_is_enough = fp8_helps && fp8.mean >= kEnoughOfBf16 * bf16.mean;
    const double cost = fp8_is_enough ? kFp8Cost * candidate.share : candidate.share;
    options.push_back({i, fp8_is_enough ? Level::fp8 : Level::bf16, cost,
                       (fp8_is_enough ? fp8 : bf16).mean / cost, fp8_helps});
  }
  std::ranges::stable_sort(options, std::ranges::greater(), &Option::rate);
  return options;
}

}  // namespace

std::vector<Level> choose(std::span<const Candidate> candidates, double budget) {
  std::vector<Level> levels(candidates.size(), Level::quantized);
  double left = budget + kRounding;
  for (const Figure figure : {&Gain::gradient_error, &Gain::loss}) {
    for (Option option : options_by(figure, candidates, levels)) {
      if (option.cost > left && option.level == Level::bf16 && option.fp8_helps) {
        option.level = Level::fp8;
        option.cost *= kFp8Cost;
      }
      if (option.cost > left) continue;
      levels[option.candidate] = option.level;
      left -= option.cost;
    }
  }
  return levels;
}

Advice judge(const Gain& gain, double suggested_cost, double todays_cost) {
  if (gain.gradient_error.is_few) return Advice::none;
  const Estimate& first = gain.gradient_error.is_noise() ? gain.loss : gain.gradient_error;
  if (first.is_below_noise()) return Advice::keep_today;
  if (first.is_above_noise()) return Advice::better;
  return suggested_cost < todays_cost - kRounding ? Advice::as_good : Advice::keep_today;
}

}  // namespace tetrad
