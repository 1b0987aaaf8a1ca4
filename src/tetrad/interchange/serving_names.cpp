// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/serving_names.h"

namespace tetrad {
namespace {

/// TensorRT-LLM has q, k and v as one module, and gate and up. Its newer versions look for the parts in the
/// list, older ones only for the module that they have. Empty: the parameter is one module everywhere.
std::string joined_module(const MappedParameter& parameter) {
  if (parameter.pieces.size() < 2) return {};
  const std::string first = module_of(parameter.pieces.front().names.hf);
  return module_of(first) + (parameter.linear.ends_with(".qkv") ? ".qkv_proj" : ".gate_up_proj");
}

}  // namespace

std::vector<std::string> module_names(const MappedParameter& parameter, ServingFormat format) {
  std::vector<std::string> names;
  for (const Piece& piece : parameter.pieces) names.push_back(module_of(piece.names.hf));
  if (parameter.copy) names.push_back(module_of(parameter.copy->names.hf));  // the head of a tied model
  if (format == ServingFormat::modelopt)
    if (std::string joined = joined_module(parameter); !joined.empty()) names.push_back(std::move(joined));
  // Nemotron-H's tensors are in `backbone`, and so were its modules; transformers 5, vLLM and TensorRT-LLM
  // have them in `model`, and not all of them translate the list.
  constexpr std::string_view kBackbone = "backbone.";
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i)
    if (names[i].starts_with(kBackbone)) names.push_back("model." + names[i].substr(kBackbone.size()));
  return names;
}

}  // namespace tetrad
