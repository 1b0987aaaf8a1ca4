// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/score.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

std::vector<std::int32_t> parse_line(const std::string& line, std::int64_t number, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  const auto is_separator = [](char c) { return c == ' ' || c == ',' || c == '\t' || c == '\r'; };
  while (true) {
    at = std::find_if_not(at, end, is_separator);
    if (at == end) return ids;
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    TETRAD_CHECK(error == std::errc() && (next == end || is_separator(*next)), "line {}: '{}' is no token id",
                 number, std::string(at, std::find_if(at, end, is_separator)).substr(0, 40));
    TETRAD_CHECK(id >= 0 && id < vocab, "line {}: token id {} is not below the model's vocabulary, {}",
                 number, id, vocab);
    ids.push_back(id);
    at = next;
  }
}

}  // namespace

std::vector<std::vector<std::int32_t>> read_token_lines(const std::filesystem::path& file,
                                                        std::int64_t vocab) {
  std::ifstream opened;
  if (file != "-") opened.open(file);
  std::istream& in = file == "-" ? std::cin : opened;
  TETRAD_CHECK(in.good(), "cannot read {}", file.string());
  std::vector<std::vector<std::int32_t>> lines;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::int32_t> ids = parse_line(line, ++number, vocab);
    if (!ids.empty()) lines.push_back(std::move(ids));
  }
  TETRAD_CHECK(!lines.empty(), "{} holds no token ids", file.string());
  return lines;
}

NextTokenLogProbabilities::NextTokenLogProbabilities(std::span<const float> logits)
    : logits_(logits), maximum_(*std::ranges::max_element(logits)) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum_);
  log_sum_ = std::log(sum);
}

double NextTokenLogProbabilities::operator[](std::int32_t token) const {
  return static_cast<double>(logits_[static_cast<std::size_t>(token)]) - maximum_ - log_sum_;
}

Score score(Decoder& decoder, const Pass& pass, std::span<const std::int32_t> tokens, KeepLogits keep) {
  Session session = decoder.start(static_cast<std::int64_t>(tokens.size()));
  Pass own = pass;
  Score result;
  const auto vocab = static_cast<std::size_t>(decoder.config().vocab);
  if (tokens.empty()) return result;
  decoder.extend(own, session, tokens, false, [&](std::int64_t first, std::span<const float> logits) {
    for (std::size_t row = 0; row * vocab < logits.size(); ++row) {
      const std::size_t next = static_cast<std::size_t>(first) + row + 1;
      if (next < tokens.size())
        result.log_probabilities.push_back(
            NextTokenLogProbabilities(logits.subspan(row * vocab, vocab))[tokens[next]]);
    }
    if (keep == KeepLogits::yes) result.logits.insert(result.logits.end(), logits.begin(), logits.end());
  });
  return result;
}

}  // namespace tetrad
