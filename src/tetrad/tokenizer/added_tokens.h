// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens that stand for themselves: cut out of the text before it is split, never made by merging.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tetrad {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = true;       //!< a mark, not text: decoders may leave it out
  bool single_word = false;  //!< not beside a character of a word
  bool lstrip = false;       //!< takes the white space before it
  bool rstrip = false;       //!< takes the white space behind it
  bool normalized = false;   //!< looked for after all that are not, in what they leave
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Finds added tokens in a text as the `tokenizers` package does: the leftmost, of those the longest, and so
/// on behind it.
class AddedTokenFinder {
 public:
  /// Where a token was found, with the white space that it takes.
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = 0;
  };

  /// Contents are not empty; of equal ones the first counts.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  /// Calls plain(text) and found(id) for the parts of `text`, in order. No part of it is empty.
  template <typename Plain, typename Found>
  void cut(std::string_view text, const Plain& plain, const Found& found) const {
    std::size_t done = 0;
    std::size_t from = 0;
    while (const auto match = find(text, from, done)) {
      if (match->begin > done) plain(text.substr(done, match->begin - done));
      if (match->end > match->begin) found(match->id);  // else one before it took all of it
      done = match->end;
    }
    if (done < text.size()) plain(text.substr(done));
  }

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;  //!< by byte
    std::int32_t token = -1;                           //!< that ends here: an index into tokens_
  };

  /// The next match that begins at or behind `from`, which moves behind its content. White space in front of
  /// `done` belongs to the match before, so that nothing may be left for one that strips.
  std::optional<Match> find(std::string_view text, std::size_t& from, std::size_t done) const;
  const AddedToken* longest_at(std::string_view text, std::size_t begin) const;
  std::size_t next_start(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  //!< first bytes of tokens
  std::optional<char> only_start_;  //!< if there is but one
};

}  // namespace tetrad
