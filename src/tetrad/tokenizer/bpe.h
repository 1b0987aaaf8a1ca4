#pragma once
// Byte-level BPE: a text is cut into pre-tokens, a pre-token is a sequence of bytes, and neighbours are
// joined in the order in which training joined them.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tetrad/tokenizer/merge_table.h"
#include "tetrad/tokenizer/split.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// A token that stands for itself: found in the text before it is cut, never made by merging.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = true;
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// What a tokenizer.json says. Token strings are the bytes they stand for, not their spelling in the file.
struct BpeDefinition {
  const Split* split = &gpt2_split();
  bool ignore_merges = false;       //!< a pre-token that is a token needs no merging (Llama 3)
  std::vector<std::string> tokens;  //!< by id; empty: no such id
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  //!< in order of priority
  std::vector<AddedToken> added;                              //!< in order of id
};

/// The usual separator of documents; train_bpe gives it the last id.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class BpeTokenizer final : public Tokenizer {
 public:
  /// Throws Error (bad input) that begins with `where` if a byte has no token, two tokens are equal, a merge
  /// refers to a token that is not there or yields one, or is there twice.
  explicit BpeTokenizer(BpeDefinition definition, std::string_view where = "tokenizer");
  ~BpeTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int32_t vocab() const override { return static_cast<std::int32_t>(definition_.tokens.size()); }
  std::optional<std::int32_t> end_of_document() const override { return end_of_document_; }
  std::string description() const override;
  std::string hash() const override { return hash_; }
  std::size_t cut(std::string_view text, std::size_t at_least) const override;

  const BpeDefinition& definition() const { return definition_; }

 private:
  class Cache;

  void index_tokens(std::string_view where);
  void index_merges(std::string_view where);
  void index_added(std::string_view where);
  std::string compute_hash() const;
  const AddedToken* added_at(std::string_view text, std::size_t begin) const;
  void encode_plain(std::string_view text, Cache& cache, std::vector<std::int32_t>& ids) const;
  std::vector<std::int32_t> encode_word(std::string_view word) const;

  BpeDefinition definition_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::pair<std::string_view, std::int32_t>> by_text_;  //!< tokens, sorted
  std::vector<AddedToken> added_;                                   //!< longest first
  std::array<bool, 256> starts_added_{};                            //!< first bytes of added tokens
  bool cuttable_ = true;                                            //!< no added token spans a safe cut
  std::optional<std::int32_t> end_of_document_;
  std::string hash_;

  mutable std::mutex caches_mutex_;
  mutable std::vector<std::unique_ptr<Cache>> caches_;  //!< not in use; one per thread that ever encoded
};

}  // namespace tetrad
