// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the files of others say about a model, its weights aside.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/interchange/gguf_file.h"
#include "tetrad/model/config.h"
#include "tetrad/tokenizer/tokenizer.h"

namespace tetrad {

struct ModelDescription {
  ModelConfig model;
  std::int64_t sequence = 0;             //!< tokens that are read at a time unless more are asked for
  std::unique_ptr<Tokenizer> tokenizer;  //!< nullptr: none that we read
  std::string tokenizer_json;            //!< empty also where the tokenizer is that of plain bytes
  std::string no_tokenizer;              //!< why one that is there is left out, for people
  std::vector<std::string> warnings;     //!< for people
};

/// Of a Hugging Face folder: config.json, and generation_config.json, tokenizer.json and
/// tokenizer_config.json where they are there. Throws Error (bad input) for models that we do not have.
ModelDescription read_hf_description(const std::filesystem::path& folder);

/// The same of a GGUF file.
ModelDescription read_gguf_description(const GgufHeader& header);

}  // namespace tetrad
