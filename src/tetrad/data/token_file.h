// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token files: Megatron's NAME.bin (token ids, one after the other) and NAME.idx (lengths of sequences, and
// which of them are a document), with an optional NAME.json of our own. Those of llm.c and nanoGPT, which are
// a NAME.bin alone, can be read too.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/core/threads.h"
#include "tetrad/data/token_format.h"
#include "tetrad/data/token_metadata.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/input_file.h"

namespace tetrad {

/// NAME of a token file, also if somebody wrote NAME.bin or NAME.idx.
std::string token_file_name(const std::string& path);

/// An open token file: one stream of tokens. The index has been checked against the sizes of both files.
class TokenFile {
 public:
  /// Throws Error (bad input) if a file cannot be read or is not sound. Without a .json there is no metadata.
  /// Without an .idx it is a file of llm.c, which is known by its header, or, if `path` ends in .bin, one of
  /// nanoGPT, which has none.
  explicit TokenFile(const std::string& path);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }  //!< tokens
  DType dtype() const { return dtype_; }       //!< u16 or i32
  TokenFormat format() const { return format_; }
  std::int64_t documents() const { return documents_; }  //!< 1 where the format knows none
  bool knows_documents() const { return format_ == TokenFormat::megatron; }
  const std::optional<TokenMetadata>& metadata() const { return metadata_; }

  /// Tokens first, first + 1, … Throws Error (failure) beyond the end.
  void read(std::int64_t first, std::span<std::int32_t> tokens) const;

  /// Largest and smallest id; {-1, -1} for a file without tokens.
  struct Range {
    std::int64_t lowest = -1;
    std::int64_t highest = -1;
  };
  /// What reading the whole file tells, on all threads.
  struct Survey {
    Range range;
    std::string hash;  //!< SHA-256 over those of the pieces of the file: equal for equal tokens and documents
  };
  Survey survey(Threads& threads) const;

  /// Where each document ends, in tokens; those without tokens are left out.
  std::vector<std::int64_t> document_ends() const;

  /// Throws Error (bad input) that names the first id that is negative or not below `vocab`. Reads the whole
  /// file, and returns the hash of survey().
  std::string validate(Threads& threads, std::int64_t vocab) const;

 private:
  void open_single(const std::string& path);
  /// Tokens as they lie there; T is what dtype() says.
  template <typename T>
  void read_raw(std::int64_t first, std::span<T> tokens) const;

  template <typename Body>
  void for_each_chunk(Threads& threads, const Body& body) const;  //!< body(chunk, first, ids) in parallel

  std::string name_;
  std::string where_;  //!< for messages
  InputFile tokens_;
  TokenFormat format_ = TokenFormat::megatron;
  DType dtype_ = DType::u16;
  std::size_t begin_ = 0;  //!< where the tokens begin in tokens_
  std::int64_t size_ = 0;
  std::int64_t documents_ = 0;
  std::optional<TokenMetadata> metadata_;
};

/// Writes NAME.bin, NAME.idx and NAME.json as the tokens come. commit() makes them appear; without it nothing
/// remains. The .idx goes last and an old one first, so that no moment has an index of other tokens.
class TokenFileWriter {
 public:
  /// Ids will be below `vocab`: 16 bits each if that is enough, else 32. Throws Error (bad input) if the
  /// files cannot be created.
  TokenFileWriter(const std::string& path, std::int64_t vocab);

  /// To the document that is open.
  void append(std::span<const std::int32_t> tokens);

  /// A document without tokens is not written.
  void end_document();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return std::ssize(document_ends_); }

  /// Fills in vocab, tokens, documents and the unigram entropy. Returns what NAME.json holds.
  TokenMetadata commit(TokenMetadata metadata);

 private:
  void flush_buffer();
  void end_sequence();

  std::string name_;
  std::int64_t vocab_;
  DType dtype_;
  AtomicFile bin_;
  AtomicFile idx_;
  AtomicFile json_;
  std::vector<std::byte> buffer_;
  std::int64_t tokens_ = 0;
  std::int64_t sequence_begin_ = 0;
  std::int64_t document_begin_ = 0;
  std::vector<std::int32_t> lengths_;        //!< lengths of the sequences
  std::vector<std::int64_t> document_ends_;  //!< as numbers of sequences
  std::vector<std::int64_t> counts_;         //!< by id
};

}  // namespace tetrad
