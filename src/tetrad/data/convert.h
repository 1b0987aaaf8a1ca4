// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token files of any format that can be read to one of our own.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "tetrad/core/threads.h"
#include "tetrad/data/token_metadata.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct ConvertOptions {
  std::string output;      //!< NAME
  std::int64_t vocab = 0;  //!< 0: of the tokenizer, else what the files say, else as small as may be
  const Tokenizer* tokenizer = nullptr;           //!< that made the tokens, if it is known
  std::string tokenizer_spec = {};                //!< how it was named, for the metadata
  std::optional<std::int32_t> document_end = {};  //!< a document ends behind each of these, too
  /// Called after every step: tokens done, tokens in all.
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

/// One after the other into one file. All are opened and checked first. Throws Error (bad input) if one is
/// not sound or has an id that is not below the vocabulary, or if two were made with different tokenizers.
TokenMetadata convert_tokens(Threads& threads, std::span<const std::string> inputs,
                             const ConvertOptions& options);

}  // namespace tetrad
