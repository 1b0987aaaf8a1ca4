#pragma once
// Pre-tokenizers: where a text is cut before BPE. Merges never cross a cut.

#include <cstddef>
#include <span>
#include <string_view>

namespace tetrad {

struct Split {
  std::string_view name;
  std::string_view pattern;  //!< the regular expression that tokenizer.json files hold

  /// The end of the pre-token that begins at `begin` < text.size(); always beyond `begin`. Together the
  /// pre-tokens are the text.
  std::size_t (*next)(std::string_view text, std::size_t begin);
};

const Split& gpt2_split();

/// The split with exactly this pattern, or nullptr: a pattern that we do not implement is refused, not
/// guessed.
const Split* find_split(std::string_view pattern);

/// Where `text` can be cut in two at or after `at_least` without any split of ours noticing: in front of a
/// space or newline that follows a letter. text.size() if there is no such place.
std::size_t safe_cut(std::string_view text, std::size_t at_least);

}  // namespace tetrad
