// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr std::int32_t kBytes = 256;

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(pair.first)} << 32 | static_cast<std::uint32_t>(pair.second);
    return key * 0x9E3779B97F4A7C15u >> 17;
  }
};

/// The words as sequences of tokens, and how often every pair of neighbours occurs in them.
class PairCounts {
 public:
  void add_word(std::string_view word, std::int64_t count) {
    Word& added = words_.emplace_back();
    added.count = count;
    for (const char c : word) added.ids.push_back(static_cast<std::uint8_t>(c));
    for (std::size_t i = 0; i + 1 < added.ids.size(); ++i)
      change({added.ids[i], added.ids[i + 1]}, count, words_.size() - 1);
  }

  /// To be called when all words are there.
  void queue_touched() {
    for (const Pair& pair : touched_) {
      const auto found = pairs_.find(pair);
      if (found == pairs_.end()) continue;
      found->second.touched = false;
      queue_.push({found->second.count, pair});
    }
    touched_.clear();
  }

  /// The most frequent pair that occurs at least twice; false if there is none.
  bool pop(Pair& best) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const std::int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count < 2) continue;
      if (count != top.count) {  // It was more frequent when it was queued: its turn comes later.
        queue_.push({count, top.pair});
        continue;
      }
      best = top.pair;
      return true;
    }
    return false;
  }

  /// Replaces the pair by `joined` in all words.
  void join(const Pair& pair, std::int32_t joined) {
    const std::vector<std::size_t> places = std::move(pairs_.at(pair).words);
    for (const std::size_t place : places) join_in_word(place, pair, joined);
    pairs_.erase(pair);
    queue_touched();
  }

 private:
  struct Word {
    std::vector<std::int32_t> ids;
    std::int64_t count = 0;
  };

  struct PairInfo {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  //!< where it is or was; never twice in a row the same
    bool touched = false;            //!< more frequent than its candidates in the queue know
  };

  struct Candidate {
    std::int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void change(const Pair& pair, std::int64_t by, std::size_t word) {
    PairInfo& info = pairs_[pair];
    info.count += by;
    if (by <= 0) return;
    if (info.words.empty() || info.words.back() != word) info.words.push_back(word);
    if (!std::exchange(info.touched, true)) touched_.push_back(pair);
  }

  void join_in_word(std::size_t place, const Pair& pair, std::int32_t joined) {
    std::vector<std::int32_t>& ids = words_[place].ids;
    const std::int64_t count = words_[place].count;
    std::size_t kept = 0;  // ids[0, kept) are done, the rest begins at i
    for (std::size_t i = 0; i < ids.size();) {
      if (i + 1 == ids.size() || ids[i] != pair.first || ids[i + 1] != pair.second) {
        ids[kept++] = ids[i++];
        continue;
      }
      if (kept > 0) {
        change({ids[kept - 1], pair.first}, -count, place);
        change({ids[kept - 1], joined}, count, place);
      }
      if (i + 2 < ids.size()) {
        change({pair.second, ids[i + 2]}, -count, place);
        change({joined, ids[i + 2]}, count, place);
      }
      ids[kept++] = joined;
      i += 2;
    }
    ids.resize(kept);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, PairInfo, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> touched_;
};

}  // namespace

void BpeTrainer::add(std::string_view text) {
  // Longer ones are data, not words: nothing that would occur elsewhere can be learned from them.
  constexpr std::size_t kMaxWord = 256;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = split_->next(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (word.size() < 2 || word.size() > kMaxWord) continue;
    const auto found = words_.find(word);
    if (found != words_.end())
      ++found->second;
    else
      words_.emplace(word, 1);
  }
}

BpeDefinition BpeTrainer::train(std::int64_t vocab) const {
  constexpr std::int64_t kMaxVocab = std::int64_t{1} << 24;
  TETRAD_CHECK(vocab > kBytes && vocab <= kMaxVocab,
               "a byte-level BPE cannot have {} tokens: choose {} (the bytes and {}) to {}", vocab,
               kBytes + 1, kEndOfText, kMaxVocab);
  BpeDefinition definition;
  definition.splits = {split_};
  std::unordered_map<std::string, std::int32_t> ids;
  for (int byte = 0; byte < kBytes; ++byte) {
    definition.tokens.emplace_back(1, static_cast<char>(byte));
    ids.emplace(definition.tokens.back(), byte);
  }
  PairCounts counts;
  for (const auto& [word, count] : words_) counts.add_word(word, count);
  counts.queue_touched();
  std::unordered_set<Pair, PairHash> merged;
  Pair pair;
  while (std::ssize(definition.tokens) + 1 < vocab && counts.pop(pair)) {
    std::string joined = definition.tokens[static_cast<std::size_t>(pair.first)] +
                         definition.tokens[static_cast<std::size_t>(pair.second)];
    // Two pairs can yield the same bytes ("ab" + "c", "a" + "bc"): one token, two merges.
    const auto [found, is_new] = ids.try_emplace(joined, static_cast<std::int32_t>(definition.tokens.size()));
    if (is_new) definition.tokens.push_back(std::move(joined));
    // A pair comes back when another merge yields one of its tokens anew.
    if (merged.insert(pair).second) definition.merges.push_back(pair);
    counts.join(pair, found->second);
  }
  definition.added.push_back(
      {.id = static_cast<std::int32_t>(definition.tokens.size()), .content = std::string(kEndOfText)});
  definition.tokens.emplace_back(kEndOfText);
  return definition;
}

BpeDefinition train_bpe(std::span<const std::string_view> texts, std::int64_t vocab) {
  BpeTrainer trainer;
  for (const std::string_view text : texts) trainer.add(text);
  return trainer.train(vocab);
}

}  // namespace tetrad
