// SPDX-License-Identifier: Apache-2.0
#pragma once
// The data of a run: all its sources, checked, and batches from them.

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/data/config.h"
#include "tetrad/data/mixture.h"
#include "tetrad/data/token_file.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

/// A token file as sequences for training: sequence k has the inputs k·T … k·T+T−1 of the stream and, as
/// targets, the tokens one further on. Together they have every token but the first as a target, except for
/// the last few of the file that fill no sequence.
class TokenSequences {
 public:
  /// `masks_documents`: each sequence is to say where its documents begin. Throws Error (bad input) if the
  /// file has not even one sequence, or does not know; `what` begins the message.
  TokenSequences(const std::string& path, std::int64_t sequence, const std::string& what,
                 bool masks_documents = false);

  std::int64_t count() const { return (file_.size() - 1) / sequence_; }
  std::int64_t sequence() const { return sequence_; }  //!< tokens
  const TokenFile& file() const { return file_; }
  bool masks_documents() const { return !document_ends_.empty(); }

  /// All spans have `sequence()` elements, but `document_starts` has none unless masks_documents(): it gets
  /// the index of the first input of each input's document (ops/documents.h). A document that began in an
  /// earlier sequence begins anew in this one.
  void read(std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
            std::span<std::int32_t> document_starts = {}) const;

  std::optional<double> bytes_per_token() const;  //!< bytes of text per token, if the file says so
  std::optional<double> entropy() const;          //!< nats per token, of a synthetic source

 private:
  TokenFile file_;
  std::int64_t sequence_;
  std::vector<std::int64_t> document_ends_;  //!< in tokens; empty: documents are not masked
};

/// The tokenizer that made a token file, or null: it may be unknown, or have moved or changed since. Relative
/// paths are tried from here and from beside the token file.
std::unique_ptr<Tokenizer> tokenizer_of(const TokenFile& file);

struct DatasetOptions {
  std::int64_t sequence = 0;  //!< tokens of a sequence
  std::int64_t vocab = 0;     //!< the model's; all ids must be below it
  std::int64_t samples = 0;   //!< sequences of the whole run; phases are fractions of it
  std::uint64_t seed = 0;     //!< seed of the order
};

class Dataset {
 public:
  /// Opens and checks everything: Error (bad input) says which source is wrong and why.
  Dataset(Threads& threads, const DataConfig& config, const DatasetOptions& options);

  /// The next `sequences` samples of the run, [sequences, sequence] each, row-major. `document_starts` has no
  /// elements unless masks_documents().
  void next(std::int64_t sequences, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
            std::span<std::int32_t> document_starts = {});

  /// Whether nothing is to cross the documents of a sequence.
  bool masks_documents() const { return masks_documents_; }

  std::span<const std::string> source_names() const { return names_; }
  const TokenSequences& source(const std::string& name) const;  //!< Throws Error (bad input): no such source.
  const TokenSequences* heldout(const std::string& name) const;  //!< nullptr: it has no held-out tokens

  /// The tokenizer of the sources, if it is known and can be loaded.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  /// Its hash, also where only the token files know it; empty if it is unknown.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }

  /// Hashes of the tokens: by source, and of held-out ones under SOURCE.heldout.
  const std::map<std::string, std::string>& hashes() const { return hashes_; }

  Mixture& mixture() { return *mixture_; }
  const Mixture& mixture() const { return *mixture_; }

  nlohmann::json state() const;
  void restore(const nlohmann::json& state);  //!< Throws Error (bad input).

 private:
  struct Source {
    std::unique_ptr<TokenSequences> train;
    std::unique_ptr<TokenSequences> heldout;
  };

  void open_sources(Threads& threads, const DataConfig& config, const DatasetOptions& options);
  void check_tokenizers(const DataConfig& config);
  void make_mixture(const DataConfig& config, const DatasetOptions& options);

  std::int64_t sequence_;
  bool masks_documents_;
  std::vector<std::string> names_;  //!< sorted
  std::map<std::string, Source> sources_;
  std::map<std::string, std::string> hashes_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string tokenizer_hash_;
  std::unique_ptr<Mixture> mixture_;
};

}  // namespace tetrad
