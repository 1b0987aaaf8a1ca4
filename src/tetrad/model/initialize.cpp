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

/// Calls value(words) for the Philox words of each element in turn.
template <typename Value>
void fill(Parameter& parameter, std::uint64_t seed, const Value& value) {
  constexpr std::int64_t kPiece = 1 << 14;
  const std::uint32_t name = hash_of(parameter.name);
  float* out = parameter.value.f32();
  const std::int64_t size = parameter.value.size();
  parallel_for((size + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < std::min(size, (piece + 1) * kPiece); ++i) {
      constexpr std::uint32_t kPurpose =
          0x494E4954;  // keeps these bits apart from those of other uses of the seed
      const PhiloxWords words =
          philox4x32_10({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), name, kPurpose},
                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      out[i] = static_cast<float>(value(words));
    }
  });
}

double normal(const PhiloxWords& words) {
  return std::sqrt(-2 * std::log(uniform(words[0]))) * std::cos(2 * std::numbers::pi * uniform(words[1]));
}

bool ends_with(const Parameter& parameter, std::string_view suffix) {
  return std::string_view(parameter.name).ends_with(suffix);
}

}  // namespace

void initialize_parameter(Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
  const double std_dev = config.init_std;
  const auto constant = [&](double value) {
    fill(parameter, seed, [&](const PhiloxWords&) { return value; });
  };
  if (ends_with(parameter, "norm.weight") || ends_with(parameter, ".d")) {
    constant(1);
  } else if (ends_with(parameter, "conv.bias")) {
    constant(0);
  } else if (ends_with(parameter, "conv.weight")) {
    const double bound = 1 / std::sqrt(static_cast<double>(config.mamba.conv));
    fill(parameter, seed, [&](const PhiloxWords& words) { return bound * (2 * uniform(words[0]) - 1); });
  } else if (ends_with(parameter, ".a_log")) {
    fill(parameter, seed, [](const PhiloxWords& words) { return std::log(1 + 15 * uniform(words[0])); });
  } else if (ends_with(parameter, ".dt_bias")) {
    // softplus(bias) is log-uniform between these: time constants of tens to a thousand tokens
    constexpr double kShortest = 0.001;
    constexpr double kLongest = 0.1;
    fill(parameter, seed, [](const PhiloxWords& words) {
      const double dt = kShortest * std::pow(kLongest / kShortest, uniform(words[0]));
      return dt + std::log(-std::expm1(-dt));
    });
  } else {
    const bool writes_residual = ends_with(parameter, ".out.weight") || ends_with(parameter, ".down.weight");
    const double scale = writes_residual ? 1 / std::sqrt(static_cast<double>(config.blocks())) : 1.0;
    fill(parameter, seed, [&](const PhiloxWords& words) { return std_dev * scale * normal(words); });
  }
}

}  // namespace tetrad
