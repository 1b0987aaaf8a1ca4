// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "tetrad/core/error.h"
#include "tetrad/interchange/export_gguf.h"
#include "tetrad/interchange/export_nvfp4.h"
#include "tetrad/interchange/hf_source.h"

namespace tetrad {
namespace {

using HfLayers = std::map<std::string, HfLayer>;

constexpr std::string_view kValuesInstead = "export its values instead, with the format hf";

bool is_nvfp4(const HfLayer& layer) {
  const auto& weight = layer.precision[Operand::fprop_w];
  return weight && weight->format == Format::nvfp4;
}

/// Every layer is one of the model's that servers can have in four bits.
void check_names(const HfModelSource& source, const HfLayers& layers) {
  std::set<std::string> linear;
  for (const MappedParameter& parameter : source.parameters())
    if (!parameter.linear.empty())
      for (const Piece& piece : parameter.pieces) linear.insert(source.module_name(piece));
  for (const auto& [name, layer] : layers)
    TETRAD_CHECK(
        !layer.precision[Operand::fprop_w] || linear.contains(name),
        "{} is quantized, but no linear layer within the blocks of such a model is called so, and the "
        "formats have no other in four bits: keep it as it is when the model is converted, or {}",
        name, kValuesInstead);
}

/// What all pieces of a parameter are; nullptr: nothing of ours.
const HfLayer* layer_of(const HfModelSource& source, const HfLayers& layers,
                        const MappedParameter& parameter) {
  const auto find = [&](const Piece& piece) {
    const auto found = layers.find(source.module_name(piece));
    return found == layers.end() ? nullptr : &found->second;
  };
  const auto weight = [](const HfLayer* layer) {
    return layer != nullptr ? layer->precision[Operand::fprop_w] : std::optional<QuantSpec>();
  };
  const HfLayer* first = find(parameter.pieces.front());
  for (const Piece& piece : parameter.pieces)
    TETRAD_CHECK(weight(find(piece)) == weight(first),
                 "{} and {} are quantized in different ways, so they cannot have one tensor scale: convert "
                 "both alike, or let each have its own",
                 source.module_name(parameter.pieces.front()), source.module_name(piece));
  return first;
}

/// The layers as the plan and the writer call them.
struct LinearLayers {
  std::map<std::string, LinearPrecision> precisions;
  InputAmax input_amax;
};

LinearLayers linear_layers(const HfModelSource& source, const HfLayers& layers, bool has_input_scales) {
  LinearLayers result;
  for (const MappedParameter& parameter : source.parameters()) {
    if (parameter.linear.empty()) continue;
    const HfLayer* layer = layer_of(source, layers, parameter);
    if (layer == nullptr) continue;
    result.precisions.emplace(parameter.linear, layer->precision);
    if (!has_input_scales || !is_nvfp4(*layer)) continue;
    float& largest = result.input_amax[parameter.linear];
    for (const Piece& piece : parameter.pieces) {
      const std::string name = source.module_name(piece);
      const float amax = layers.at(name).input_amax;
      TETRAD_CHECK(!(amax < 0), "{} has no input scale: no calibration reached it", name);
      TETRAD_CHECK(std::isfinite(amax), "{} is given values that are not finite: this model cannot be served",
                   name);
      largest = std::max(largest, amax);
    }
  }
  return result;
}

std::set<std::string> names_in_nvfp4(const HfLayers& layers) {
  std::set<std::string> names;
  for (const auto& [name, layer] : layers)
    if (is_nvfp4(layer)) names.insert(name);
  return names;
}

/// What the layers of `names` are that servers make one matrix of: "q_proj, k_proj, v_proj".
std::set<std::string> joined_layers(const HfModelSource& source, const std::set<std::string>& names) {
  std::set<std::string> joined;
  for (const MappedParameter& parameter : source.parameters()) {
    std::vector<std::string> leaves;
    bool any = false;
    for (const Piece& piece : parameter.pieces) {
      const std::string name = source.module_name(piece);
      leaves.push_back(name.substr(name.rfind('.') + 1));
      any |= names.contains(name);
    }
    if (any && leaves.size() > 1) joined.insert(fmt::format("{}", fmt::join(leaves, ", ")));
  }
  return joined;
}

}  // namespace

ExportSummary export_hf_model(const std::filesystem::path& folder, const TensorTable& tensors,
                              const std::map<std::string, HfLayer>& layers, const std::filesystem::path& out,
                              const HfExport& what, Backend& cpu) {
  const bool is_modelopt = what.format == "modelopt";
  const bool has_input_scales = is_modelopt || what.format == "compressed-tensors";
  TETRAD_CHECK(has_input_scales || what.format == "hf" || what.format == "gguf",
               "there is no format {:?}: choose hf, modelopt, compressed-tensors or gguf", what.format);
  HfModelSource source(cpu.threads(), folder, tensors);
  ExportOptions options = what.options;
  const std::vector<std::string>& known = source.description().warnings;
  options.warnings.insert(options.warnings.end(), known.begin(), known.end());
  if (what.format == "hf") return export_hf(cpu.threads(), source, out, options);

  check_names(source, layers);
  const std::set<std::string> nvfp4 = names_in_nvfp4(layers);
  if (!what.joined_scales) {
    if (const std::set<std::string> joined = joined_layers(source, nvfp4);
        has_input_scales && !joined.empty())
      options.warnings.push_back(fmt::format(
          "these layers have tensor scales of their own, as in training: {}. Servers that make one "
          "matrix of them (vLLM, SGLang, TensorRT-LLM) want one scale: they take the largest for "
          "all, which changes weights, or refuse the model. Export for them with joined_scales",
          fmt::join(joined, "; ")));
    source.take_apart(nvfp4);
  }
  const LinearLayers linear = linear_layers(source, layers, has_input_scales);
  const Nvfp4Plan plan(linear.precisions, kValuesInstead);
  if (what.format == "gguf") {
    if (!source.description().no_tokenizer.empty())
      options.warnings.push_back(source.description().no_tokenizer);
    return export_gguf(source, out, options, plan, cpu);
  }
  TETRAD_CHECK(plan.size() > 0, "no layer of this model has NVFP4 weights in its forward pass: {}",
               kValuesInstead);
  return export_nvfp4(source, out, options,
                      is_modelopt ? ServingFormat::modelopt : ServingFormat::compressed_tensors, plan,
                      linear.input_amax, cpu);
}

}  // namespace tetrad
