// SPDX-License-Identifier: Apache-2.0
#pragma once
// Log-probabilities of given tokens.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "tetrad/model/decoder.h"

namespace tetrad {

/// Lines of token ids, separated by spaces or commas. Throws Error (bad input) with the line's number.
std::vector<std::vector<std::int32_t>> read_token_lines(const std::filesystem::path& file,
                                                        std::int64_t vocab);

/// Log-probabilities of the next token, from its logits.
class NextTokenLogProbabilities {
 public:
  explicit NextTokenLogProbabilities(std::span<const float> logits);
  double operator[](std::int32_t token) const;

 private:
  std::span<const float> logits_;
  double maximum_;
  double log_sum_;  //!< logarithm of the sum of exp(logit - maximum)
};

struct Score {
  std::vector<double> log_probabilities;  //!< each token's but the first, given those before it
  std::vector<float> logits;              //!< [tokens, vocab], if they are to be kept
};

enum class KeepLogits : bool { no, yes };

/// Reads long texts in parts, so that memory grows by what a session keeps of each token and no more.
Score score(Decoder& decoder, const Pass& pass, std::span<const std::int32_t> tokens,
            KeepLogits keep = KeepLogits::no);

}  // namespace tetrad
