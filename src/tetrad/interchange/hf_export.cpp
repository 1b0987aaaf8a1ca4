// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/hf_export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

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

/// What the weight of a layer is quantized with; nothing: it stays, or is none of ours.
std::optional<QuantSpec> weight_of(const HfLayers& layers, const std::string& name) {
  const auto found = layers.find(name);
  return found == layers.end() ? std::nullopt : found->second.precision[Operand::fprop_w];
}

/// Every layer in four bits is one that servers can have so.
void check_names(const HfModelSource& source, const HfLayers& layers) {
  std::set<std::string> linear;
  for (const MappedParameter& parameter : source.parameters())
    if (!parameter.linear.empty())
      for (const Piece& piece : parameter.pieces) linear.insert(source.module_name(piece));
  for (const auto& [name, layer] : layers) {
    const auto& weight = layer.precision[Operand::fprop_w];
    TETRAD_CHECK(
        !weight || weight->format == Format::fp8 || linear.contains(name),
        "{} is quantized, but no linear layer within the blocks of such a model is called so, and the "
        "formats have no other in four bits: keep it as it is when the model is converted, or {}",
        name, kValuesInstead);
  }
}

/// What all pieces of a parameter are; nullptr: nothing of ours.
const HfLayer* layer_of(const HfModelSource& source, const HfLayers& layers,
                        const MappedParameter& parameter) {
  const std::string first = source.module_name(parameter.pieces.front());
  for (const Piece& piece : parameter.pieces) {
    const std::string name = source.module_name(piece);
    TETRAD_CHECK(weight_of(layers, name) == weight_of(layers, first),
                 "{} and {} are quantized in different ways, so they cannot have one tensor scale: convert "
                 "both alike, or let each have its own",
                 first, name);
  }
  const auto found = layers.find(first);
  return found == layers.end() ? nullptr : &found->second;
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

/// Of what servers make one matrix, and we too: "q_proj, k_proj, v_proj".
struct Joined {
  std::string leaves;
  std::string first;  //!< module
  bool any_nvfp4 = false;
  bool all_equal = true;  //!< quantized alike
};

std::vector<Joined> joined_layers(const HfModelSource& source, const HfLayers& layers) {
  std::vector<Joined> result;
  for (const MappedParameter& parameter : source.parameters()) {
    if (parameter.linear.empty() || parameter.pieces.size() < 2) continue;
    Joined joined;
    joined.first = source.module_name(parameter.pieces.front());
    for (const Piece& piece : parameter.pieces) {
      const std::string name = source.module_name(piece);
      const std::optional<QuantSpec> weight = weight_of(layers, name);
      joined.any_nvfp4 |= weight && weight->format == Format::nvfp4;
      joined.all_equal &= weight == weight_of(layers, joined.first);
      joined.leaves += (joined.leaves.empty() ? "" : ", ") + name.substr(name.rfind('.') + 1);
    }
    result.push_back(std::move(joined));
  }
  return result;
}

/// As they were trained: each with its own scale. `joined_scales` leaves those together that can share one.
void take_apart(HfModelSource& source, const std::vector<Joined>& layers, bool joined_scales) {
  std::set<std::string> apart;
  for (const Joined& joined : layers)
    if (joined.any_nvfp4 ? !joined_scales : !joined.all_equal) apart.insert(joined.first);
  source.take_apart(apart);
}

std::string warning_about(const std::vector<Joined>& layers) {
  std::set<std::string> names;
  for (const Joined& joined : layers)
    if (joined.any_nvfp4) names.insert(joined.leaves);
  if (names.empty()) return {};
  return fmt::format(
      "these layers have tensor scales of their own, as in training: {}. Servers that make one matrix of "
      "them "
      "(vLLM, SGLang, TensorRT-LLM) want one scale: they take the largest for all, which changes weights, or "
      "refuse the model. Export for them with joined_scales",
      fmt::join(names, "; "));
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
  const std::vector<Joined> joined = joined_layers(source, layers);
  if (std::string warning = warning_about(joined);
      has_input_scales && !what.joined_scales && !warning.empty())
    options.warnings.push_back(std::move(warning));
  take_apart(source, joined, what.joined_scales);
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
