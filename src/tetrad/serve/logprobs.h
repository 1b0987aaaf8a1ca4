// SPDX-License-Identifier: Apache-2.0
#pragma once
// The logprobs object of OpenAI's completions.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "tetrad/serve/engine.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// Its four lists, a place at a time.
class Logprobs {
 public:
  explicit Logprobs(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  /// `score`: null for the first token of a text, which nothing predicts.
  void add(std::int32_t token, const TokenScore* score);
  /// What was added since the last call.
  nlohmann::json take();

 private:
  struct Lists {
    nlohmann::json tokens = nlohmann::json::array();
    nlohmann::json values = nlohmann::json::array();
    nlohmann::json likeliest = nlohmann::json::array();
    nlohmann::json offsets = nlohmann::json::array();
  };

  const Tokenizer* tokenizer_;
  std::size_t offset_ = 0;  //!< in characters
  Lists lists_;
};

}  // namespace tetrad
