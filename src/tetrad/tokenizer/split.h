// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pre-tokenizers: where a text is cut before BPE. Merges never cross a cut.

#include <cstddef>
#include <span>
#include <string_view>

namespace tetrad {

struct Split {
  std::string_view name;
  std::string_view pattern;  //!< the regular expression that tokenizer.json files hold; empty: they hold none

  /// The end of the pre-token that begins at `begin` < text.size(); always beyond `begin`. Together the
  /// pre-tokens are the text.
  std::size_t (*next)(std::string_view text, std::size_t begin);
};

const Split& gpt2_split();

/// None: the whole text is one pre-token (ByteLevel without its regular expression).
const Split& whole_split();

/// Numbers apart from all else, digit by digit or run by run: Digits of tokenizer.json (StarCoder, SmolLM).
const Split& digit_split();
const Split& number_split();

/// The split with exactly this pattern, or with another spelling of it that is known to mean the same;
/// nullptr: a pattern that we do not implement is refused, not guessed.
const Split* find_split(std::string_view pattern);

/// The split of this name, or nullptr.
const Split* split_of_name(std::string_view name);

/// All that have a pattern, for messages and tests.
std::span<const Split> regex_splits();

/// Where `text` can be cut in two at or after `at_least` without any split that has a pattern noticing: in
/// front of a space or newline that follows a letter. text.size() if there is no such place.
std::size_t safe_cut(std::string_view text, std::size_t at_least);

}  // namespace tetrad
