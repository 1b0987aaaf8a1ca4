// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text files to token files, with a part held out.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tetrad/core/threads.h"
#include "tetrad/data/text_files.h"
#include "tetrad/data/token_metadata.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct PrepareOptions {
  std::string output;     //!< NAME; what is held out goes to NAME-heldout
  std::string tokenizer;  //!< how it was named, for the metadata
  double heldout = 0.02;  //!< fraction: of the files or, if there is only one, of its bytes
  bool special = false;   //!< the tokenizer's prefix() and suffix() around every document
  /// Called after every step: bytes done, bytes in all.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct PrepareResult {
  TokenMetadata train;
  std::optional<TokenMetadata> heldout;
  std::int64_t files = 0;          //!< encoded
  std::int64_t heldout_files = 0;  //!< how many of them are held out
  std::int64_t binary = 0;         //!< skipped: files with a zero byte
  std::int64_t empty = 0;          //!< skipped
};

/// The name of what is held out from NAME.
std::string heldout_name(const std::string& name);

/// Every file is a document and ends with the tokenizer's end-of-document token. Whole files are held out,
/// chosen by the hash of their key, so that the choice stays when other files come and go: at least one if
/// there are several, never all. Of a single file it is the end.
PrepareResult prepare_tokens(Threads& threads, const TextFiles& files, const Tokenizer& tokenizer,
                             const PrepareOptions& options);

}  // namespace tetrad
