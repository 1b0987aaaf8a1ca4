// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_source.h"

#include <algorithm>
#include <utility>

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// What tokenizers of transformers are saved as.
std::vector<fs::path> find_text_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"})
    if (fs::is_regular_file(folder / name, ignored)) files.push_back(folder / name);
  return files;
}

MappedParameter alone(const MappedParameter& parameter, Piece piece) {
  MappedParameter result;
  result.name = piece.names.hf;
  result.shape = piece.shape;
  result.block = parameter.block;
  result.linear = module_of(piece.names.hf);
  piece.first_row = 0;
  result.pieces.push_back(std::move(piece));
  return result;
}

}  // namespace

HfModelSource::HfModelSource(Threads& threads, const fs::path& folder, const TensorTable& tensors)
    : description_(read_hf_description(folder)),
      family_(family_of(description_.model)),
      parameters_(tensor_map(description_.model, family_)),
      text_files_(find_text_files(folder)),
      pieces_(threads, tensors),
      copied_(claim_all(parameters_, pieces_)) {}

std::vector<float> HfModelSource::values(const MappedParameter& parameter) const {
  return read_parameter(parameter, pieces_, copied_.contains(parameter.name));
}

void HfModelSource::take_apart(const std::set<std::string>& modules) {
  std::vector<MappedParameter> parameters;
  for (MappedParameter& parameter : parameters_) {
    const bool is_cut = parameter.pieces.size() > 1 && !parameter.linear.empty() &&
                        std::ranges::any_of(parameter.pieces, [&](const Piece& piece) {
                          return modules.contains(module_name(piece));
                        });
    if (!is_cut) {
      parameters.push_back(std::move(parameter));
      continue;
    }
    for (const Piece& piece : parameter.pieces) parameters.push_back(alone(parameter, piece));
  }
  parameters_ = std::move(parameters);
}

}  // namespace tetrad
