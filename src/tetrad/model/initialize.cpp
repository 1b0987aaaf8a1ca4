// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/initialize.h"

#include <cmath>
#include <numbers>
#include <string_view>

#include "tetrad/core/threads.h"
#include "tetrad/numerics/philox.h"

namespace tetrad {
namespace {

/// FNV-1a: names become streams of random numbers.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// In (0, 1), never 0 or 1.
double uniform(std::uint32_t word) { return (static_cast<double>(word) + 0.5) / 4294967296.0; }

/// value(words) for the Philox words of each element.
template <typename Value>
std::vector<float> fill(Threads& threads, const Parameter& parameter, std::uint64_t seed,
                        const Value& value) {
  constexpr std::int64_t kPiece = 1 << 14;
  const std::uint32_t name = hash_of(parameter.name);
  const std::int64_t size = parameter.value.size();
  const std::int64_t before = parameter.first_element();
  std::vector<float> values(static_cast<std::size_t>(size));
  float* out = values.data();
  threads.parallel_for((size + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < std::min(size, (piece + 1) * kPiece); ++i) {
      constexpr std::uint32_t kPurpose =
          0x494E4954;  // keeps these bits apart from those of other uses of the seed
      const std::int64_t place = before + i;
      const PhiloxWords words = philox4x32_10(
          {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32), name, kPurpose},
          {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      out[i] = static_cast<float>(value(words));
    }
  });
  return values;
}

double normal(const PhiloxWords& words) {
  return std::sqrt(-2 * std::log(uniform(words[0]))) * std::cos(2 * std::numbers::pi * uniform(words[1]));
}

}  // namespace

std::vector<float> initial_values(Threads& threads, const Parameter& parameter, const ModelConfig& config,
                                  std::uint64_t seed) {
  const auto constant = [&](float value) {
    return std::vector<float>(static_cast<std::size_t>(parameter.value.size()), value);
  };
  const auto draw_normal = [&](double deviation) {
    return fill(threads, parameter, seed,
                [&](const PhiloxWords& words) { return deviation * normal(words); });
  };
  switch (parameter.initial) {
    case Initial::ones:
      return constant(1);
    case Initial::zeros:
      return constant(0);
    case Initial::conv: {
      const double bound = 1 / std::sqrt(static_cast<double>(config.mamba.conv));
      return fill(threads, parameter, seed,
                  [&](const PhiloxWords& words) { return bound * (2 * uniform(words[0]) - 1); });
    }
    case Initial::decay:
      return fill(threads, parameter, seed,
                  [](const PhiloxWords& words) { return std::log(1 + 15 * uniform(words[0])); });
    case Initial::time_step:
      // softplus(bias) is log-uniform between these: time constants of tens to a thousand tokens
      return fill(threads, parameter, seed, [](const PhiloxWords& words) {
        constexpr double kShortest = 0.001;
        constexpr double kLongest = 0.1;
        const double dt = kShortest * std::pow(kLongest / kShortest, uniform(words[0]));
        return dt + std::log(-std::expm1(-dt));
      });
    case Initial::residual:
      return draw_normal(config.init_std * (1 / std::sqrt(static_cast<double>(config.blocks()))));
    default:
      return draw_normal(config.init_std);
  }
}

}  // namespace tetrad
