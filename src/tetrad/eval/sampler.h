// SPDX-License-Identifier: Apache-2.0
#pragma once
// Choosing the next token.

#include <cstdint>
#include <span>

namespace tetrad {

struct SamplingOptions {
  double temperature = 0.8;  //!< 0: always the likeliest token
  std::int64_t top_k = 0;    //!< only the k likeliest; 0 = all
  double top_p = 1;          //!< only the likeliest that together have this probability
  std::uint64_t seed = 1;
};

/// The token after position `position` of a text; a function of its arguments alone.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position);

}  // namespace tetrad
