// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/gradient_noise.h"

#include <algorithm>

#include "tetrad/core/error.h"
#include "tetrad/parallel/agreement.h"

namespace tetrad {
namespace {

std::vector<double> numbers_of(const std::vector<DrawSums>& sums) {
  std::vector<double> numbers;
  for (const DrawSums& one : sums) numbers.insert(numbers.end(), {one.reference, one.deviations, one.of_sum});
  return numbers;
}

std::vector<DrawSums> sums_of(const std::vector<double>& numbers) {
  std::vector<DrawSums> sums;
  for (std::size_t i = 0; i < numbers.size(); i += 3)
    sums.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  return sums;
}

}  // namespace

void DrawSums::add(const DrawSums& other) {
  reference += other.reference;
  deviations += other.deviations;
  of_sum += other.of_sum;
}

GradientNoise DrawSums::noise(std::int64_t draws) const {
  const auto count = static_cast<double>(draws);
  const double bias = (of_sum - deviations) / (count * (count - 1)) / reference;
  return {bias, deviations / count / reference - bias};
}

std::optional<Recipe> without_backward_quantizers(const Recipe& recipe, Decoder& decoder, double progress) {
  const auto is_transformed = [&](const Linear* linear) {
    const std::optional<QuantSpec>& spec = recipe.at(linear->layer_id(), progress)[Operand::fprop_x];
    return spec && spec->hadamard > 0;
  };
  if (std::ranges::any_of(decoder.linears(), is_transformed)) return std::nullopt;
  PrecisionConfig config = recipe.config();
  config.schedule = {
      {.at = 0, .forward = std::string(recipe.names_at(progress).forward), .backward = "bf16"}};
  return Recipe(std::move(config), decoder.config().blocks());
}

std::vector<std::vector<DrawSums>> measure_gradient_noise(Decoder& decoder, const NoiseProbe& probe) {
  TETRAD_CHECK(probe.draws >= 2, "bias and variance cannot be told apart with fewer than two draws");
  Gradients reference = make_gradients(decoder);
  Gradients sum_of_draws = make_gradients(decoder);
  const auto of_microbatch = [&](std::int64_t i) {
    Pass pass = probe.pass;
    pass.microbatch = static_cast<std::uint32_t>(i);
    const auto compute = [&](const Recipe& recipe, std::int64_t draw) {
      pass.recipe = &recipe;
      pass.draw = static_cast<std::uint32_t>(draw);
      differentiate(decoder, pass, probe.batches[static_cast<std::size_t>(i)]);
    };
    compute(probe.reference, 0);
    keep_gradients(decoder, reference);
    if (probe.after_pass) probe.after_pass();
    for (Tensor& tensor : sum_of_draws) decoder.backend().set_to_zero(tensor.bytes());
    std::vector<DrawSums> sums(reference.size());
    for (std::int64_t draw = 0; draw < probe.draws; ++draw) {
      compute(probe.recipe, draw);
      const std::vector<DeviationSums> of_draw = deviations(decoder, reference, &sum_of_draws);
      for (std::size_t k = 0; k < sums.size(); ++k) {
        sums[k].reference = of_draw[k].reference;
        sums[k].deviations += of_draw[k].deviation;
      }
      if (probe.after_pass) probe.after_pass();
    }
    const std::vector<double> of_sum = squares(decoder.backend(), sum_of_draws);
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k].of_sum = of_sum[k];
    return numbers_of(sums);
  };
  std::vector<std::vector<DrawSums>> result;
  for (const std::vector<double>& numbers :
       dealt_lists(probe.ranks, std::ssize(probe.batches), of_microbatch))
    result.push_back(sums_of(numbers));
  return result;
}

}  // namespace tetrad
