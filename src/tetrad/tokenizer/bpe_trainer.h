// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learns a byte-level BPE from text.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tetrad/tokenizer/bpe.h"

namespace tetrad {

/// Counts the words of texts, then joins the most frequent pair of neighbours again and again. The result
/// depends only on how often each word occurs: pairs that occur equally often go in the order of their ids.
class BpeTrainer {
 public:
  explicit BpeTrainer(const Split& split = gpt2_split()) : split_(&split) {}

  void add(std::string_view text);

  /// A tokenizer with ids 0 to 255 for the bytes, then the joined tokens, and last <|endoftext|>: `vocab`
  /// tokens, or fewer if no pair is left that occurs twice. Throws Error (bad input) if vocab < 257.
  BpeDefinition train(std::int64_t vocab) const;

 private:
  struct Hasher {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  const Split* split_;
  std::unordered_map<std::string, std::int64_t, Hasher, std::equal_to<>> words_;  //!< how often each occurs
};

BpeDefinition train_bpe(std::span<const std::string_view> texts, std::int64_t vocab);

}  // namespace tetrad
