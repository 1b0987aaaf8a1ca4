// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/numerics/philox.h"

namespace tetrad {
namespace {

/// In [0, 1).
double uniform(std::uint64_t seed, std::uint64_t position) {
  constexpr std::uint32_t kPurpose =
      0x53414D50;  // keeps these bits apart from those of other uses of the seed
  const PhiloxWords words = philox4x32_10(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, kPurpose},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (static_cast<double>(words[0]) * 0x1p-32 + static_cast<double>(words[1])) * 0x1p-32;
}

}  // namespace

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position) {
  for (const float logit : logits)
    TETRAD_CHECK(!std::isnan(logit),
                 "the model's output is not a number: its weights or the input are broken");
  if (options.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  // Likeliest first; equal ones in the order of their ids.
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));

  std::vector<double> weights;
  weights.reserve(order.size());
  for (const std::int32_t id : order)
    weights.push_back(std::exp((logit(id) - logit(order.front())) / options.temperature));
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < weights.size() && kept < options.top_p * total) kept += weights[count++];
    weights.resize(std::max<std::size_t>(count, 1));
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
  }

  double left = uniform(options.seed, position) * total;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace tetrad
