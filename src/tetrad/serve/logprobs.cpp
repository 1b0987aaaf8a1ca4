// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/logprobs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tetrad/serve/completions.h"

namespace tetrad {
namespace {

/// Characters that begin in the bytes.
std::size_t characters(std::string_view bytes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
}

}  // namespace

void Logprobs::add(std::int32_t token, const TokenScore* score) {
  lists_.tokens.push_back(token_name(tokenizer_, token));
  lists_.offsets.push_back(offset_);
  if (tokenizer_ != nullptr) offset_ += characters(tokenizer_->decode(std::span(&token, 1)));
  if (score == nullptr) {
    lists_.values.push_back(nullptr);
    lists_.likeliest.push_back(nullptr);
    return;
  }
  lists_.values.push_back(score->log_probability);
  nlohmann::json likeliest = nlohmann::json::object();
  for (const auto& [id, value] : score->likeliest) likeliest[token_name(tokenizer_, id)] = value;
  likeliest[lists_.tokens.back().get_ref<const std::string&>()] = score->log_probability;
  lists_.likeliest.push_back(std::move(likeliest));
}

nlohmann::json Logprobs::take() {
  Lists lists = std::exchange(lists_, {});
  return {{"tokens", std::move(lists.tokens)},
          {"token_logprobs", std::move(lists.values)},
          {"top_logprobs", std::move(lists.likeliest)},
          {"text_offset", std::move(lists.offsets)}};
}

}  // namespace tetrad
