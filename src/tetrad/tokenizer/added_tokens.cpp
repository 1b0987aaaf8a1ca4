// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/added_tokens.h"

#include <algorithm>

#include "tetrad/tokenizer/unicode.h"

namespace tetrad {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::uint32_t node = 0;
    for (const char c : tokens_[i].content) {
      const auto& next = nodes_[node].next;
      const auto found = std::ranges::find(next, c, [](const auto& edge) { return edge.first; });
      if (found != next.end()) {
        node = found->second;
        continue;
      }
      const auto fresh = static_cast<std::uint32_t>(nodes_.size());
      nodes_[node].next.emplace_back(c, fresh);
      nodes_.emplace_back();
      node = fresh;
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<std::int32_t>(i);
  }
  for (const auto& [c, node] : nodes_[0].next) starts_[static_cast<std::uint8_t>(c)] = true;
  if (nodes_[0].next.size() == 1) only_start_ = nodes_[0].next[0].first;
}

std::size_t AddedTokenFinder::next_start(std::string_view text, std::size_t from) const {
  if (only_start_) return std::min(text.find(*only_start_, from), text.size());
  if (tokens_.empty()) return text.size();
  while (from < text.size() && !starts_[static_cast<std::uint8_t>(text[from])]) ++from;
  return from;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t begin) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const auto& next = nodes_[node].next;
    const auto found = std::ranges::find(next, text[i], [](const auto& edge) { return edge.first; });
    if (found == next.end()) break;
    node = found->second;
    if (nodes_[node].token >= 0) longest = &tokens_[static_cast<std::size_t>(nodes_[node].token)];
  }
  return longest;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, std::size_t& from,
                                                              std::size_t done) const {
  const auto is_word = [](const Character& c) { return kWordCharacters.has(c.kind); };
  for (std::size_t begin = next_start(text, from); begin < text.size(); begin = next_start(text, from)) {
    const AddedToken* const token = longest_at(text, begin);
    if (token == nullptr) {
      from = begin + 1;
      continue;
    }
    const std::size_t end = begin + token->content.size();
    from = end;  // also behind one that does not count
    if (token->single_word && ((begin > 0 && is_word(character_before(text, begin))) ||
                               (end < text.size() && is_word(character_at(text, end)))))
      continue;
    Match match = {begin, end, token->id};
    // What a match before this one took is not looked at again, or a long run of spaces could take n².
    while (token->lstrip && match.begin > done) {
      const Character before = character_before(text, match.begin);
      if (before.kind != CharClass::space) break;
      match.begin -= before.bytes;
    }
    if (token->lstrip) match.begin = std::max(match.begin, done);
    if (token->rstrip) match.end = std::max(match.end, done);
    while (token->rstrip && match.end < text.size()) {
      const Character next = character_at(text, match.end);
      if (next.kind != CharClass::space) break;
      match.end += next.bytes;
    }
    match.end = std::max(match.end, match.begin);
    return match;
  }
  return std::nullopt;
}

}  // namespace tetrad
