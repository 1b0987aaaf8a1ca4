// SPDX-License-Identifier: Apache-2.0
#pragma once
// Byte-level BPE: a text is cut into pre-tokens, a pre-token is a sequence of bytes, and neighbours are
// joined in the order in which training joined them.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tetrad/tokenizer/added_tokens.h"
#include "tetrad/tokenizer/merge_table.h"
#include "tetrad/tokenizer/split.h"
#include "tetrad/tokenizer/tokenizer.h"
#include "tetrad/tokenizer/word_cache.h"

namespace tetrad {

/// What a tokenizer.json says. Token strings are the bytes they stand for, not their spelling in the file.
struct BpeDefinition {
  std::vector<const Split*> splits = {&gpt2_split()};  //!< at least one; each cuts what the one before left
  bool nfc = false;                                    //!< texts are normalized before all that follows
  bool add_prefix_space = false;                       //!< in front of a text that has none
  bool ignore_merges = false;       //!< a pre-token that is a token needs no merging (Llama 3)
  std::vector<std::string> tokens;  //!< by id; empty: no such id, or only an added token has it
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  //!< in order of priority
  std::vector<AddedToken> added;                              //!< in order of id
  std::vector<std::int32_t> prefix;                           //!< what the template puts in front of a text
  std::vector<std::int32_t> suffix;                           //!< and behind it
};

/// The BPE that encodes as ByteTokenizer does.
BpeDefinition byte_definition();

/// The usual separator of documents; train_bpe gives it the last id.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws Error (bad input) that begins with `where` if a byte has no token, two tokens are equal, an added
  /// token has the id of another, or a merge refers to a token that is not there or yields one, or is there
  /// twice.
  explicit BpeTokenizer(BpeDefinition definition, std::string_view where = "tokenizer");

  std::vector<std::int32_t> encode(std::string_view text) const override;

  /// As the `tokenizers` package: an id that no token has is nothing.
  std::string decode(std::span<const std::int32_t> ids) const override;

  std::span<const std::int32_t> prefix() const override { return definition_.prefix; }
  std::span<const std::int32_t> suffix() const override { return definition_.suffix; }
  bool is_special(std::int32_t id) const override;
  std::int32_t vocab() const override { return static_cast<std::int32_t>(definition_.tokens.size()); }
  std::optional<std::int32_t> end_of_document() const override { return end_of_document_; }
  std::string description() const override;
  std::string hash() const override { return hash_; }
  std::size_t cut(std::string_view text, std::size_t at_least) const override;

  const BpeDefinition& definition() const { return definition_; }

 private:
  void index_tokens(std::string_view where);
  void index_merges(std::string_view where);
  void index_added(std::string_view where);
  std::string compute_hash() const;
  void encode_plain(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_pieces(std::string_view text, std::size_t split, WordCache& cache,
                     std::vector<std::int32_t>& ids) const;
  std::vector<std::int32_t> encode_word(std::string_view word) const;
  const std::int32_t* id_of(std::string_view token) const;  //!< nullptr: no token
  const AddedToken* added_with_id(std::int32_t id) const;   //!< nullptr: none

  BpeDefinition definition_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::pair<std::string_view, std::int32_t>> by_text_;  //!< tokens, sorted
  std::vector<std::string> texts_;                                  //!< what each id decodes to
  AddedTokenFinder raw_added_;                                      //!< those that are not `normalized`
  AddedTokenFinder normalized_added_;
  bool cuttable_ = true;  //!< neither added tokens nor the split look across a safe cut
  std::optional<std::int32_t> end_of_document_;
  std::string hash_;

  mutable std::mutex caches_mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;  //!< not in use; one per thread that ever encoded
};

}  // namespace tetrad
