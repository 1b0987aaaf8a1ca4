// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/model_description.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tetrad/config/hf_model.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/interchange/hf_text.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// Longer sequences must be asked for: the memory of an evaluation grows with them.
constexpr std::int64_t kMaxDefaultSequence = 4096;

void add_tokenizer(ModelDescription& description, const std::string& text, const std::string& where) {
  try {
    const bool is_bytes = text == to_tokenizer_json(byte_definition());  // what export makes of plain bytes
    std::unique_ptr<Tokenizer> tokenizer =
        is_bytes ? load_tokenizer("bytes") : parse_tokenizer_json(text, where);
    TETRAD_CHECK(tokenizer->vocab() <= description.model.vocab,
                 "the tokenizer has {} tokens, the model {}: they do not belong together", tokenizer->vocab(),
                 description.model.vocab);
    description.tokenizer = std::move(tokenizer);
    if (!is_bytes) description.tokenizer_json = text;
  } catch (const Error& error) {
    description.no_tokenizer = fmt::format("the tokenizer is left out: {}", error.what());
  }
}

/// An unknown context (0) is taken for a long one.
std::int64_t default_sequence(std::int64_t context) {
  return context > 0 ? std::min(context, kMaxDefaultSequence) : kMaxDefaultSequence;
}

}  // namespace

/// The text of config.json decides what the model computes; nothing else in the folder is guessed from.
ModelDescription read_hf_description(const fs::path& folder) {
  const std::string path = (folder / "config.json").string();
  ModelDescription result;
  result.model = read_hf_model(path);
  const fs::path tokenizer = folder / "tokenizer.json";
  std::error_code ignored;
  if (fs::exists(tokenizer, ignored)) {
    const MappedFile file(tokenizer);
    const auto bytes = file.bytes();
    add_tokenizer(result, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                  fmt::format("{:?}", tokenizer.native()));
  }
  result.model.text = read_hf_text(folder, parse_hf_json(config::read_text(path), path), result.model.vocab,
                                   result.tokenizer.get(), result.warnings);
  result.sequence = default_sequence(result.model.text.context);
  return result;
}

ModelDescription read_gguf_description(const GgufHeader& header) {
  ModelDescription result;
  result.model = read_gguf_model_config(header);
  result.sequence = default_sequence(result.model.text.context);
  if (const std::string tokenizer = gguf_tokenizer_json(header); !tokenizer.empty())
    add_tokenizer(result, tokenizer, header.where);
  else
    result.no_tokenizer = "the file has no tokenizer, or not one that is read";
  return result;
}

}  // namespace tetrad
