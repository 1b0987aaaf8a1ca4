// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/nvfp4_plan.h"

#include <algorithm>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

constexpr std::uint8_t kSmallestScale = 0x01;  //!< 2^-9
constexpr std::byte kSigns{0x88};              //!< sign bits of the two codes in a byte

constexpr std::string_view kProgramRemedy =
    "quantize the final weights anew (--precision nvfp4), or export without NVFP4 (--to hf, or --to gguf "
    "--precision bf16)";

void check_servable(const std::string& layer, const LinearPrecision& precision, std::string_view remedy) {
  const auto& weight = precision[Operand::fprop_w];
  const auto& input = precision[Operand::fprop_x];
  const auto refuse = [&](std::string_view what) {
    fail("{} cannot be served as it was trained: {}; {}", layer, what, remedy);
  };
  if (weight->format != Format::nvfp4) refuse("its weights are " + std::string(name_of(weight->format)));
  if (!input || input->format != Format::nvfp4)
    refuse("its inputs are not NVFP4, as servers would make them");
  if (weight->hadamard != 0) refuse("its weights are transformed before they are quantized");
  if (weight->rounding != Rounding::nearest) refuse("its weights are rounded stochastically");
}

void note_only_in_training(const LinearPrecision& layer, std::set<std::string>& what) {
  const QuantSpec& input = *layer[Operand::fprop_x];
  if (layer.centre) what.insert("centring");
  if (input.scaling == Scaling::four_six) what.insert("4/6 block scaling");
  if (input.scaling == Scaling::search) what.insert("scale search");
  if (input.rounding != Rounding::nearest) what.insert("stochastic rounding");
  if (input.block != BlockShape{1, nvfp4::kBlock})
    what.insert(fmt::format("blocks of {}x{}", input.block.rows, input.block.cols));
}

}  // namespace

Nvfp4Plan::Nvfp4Plan(const PrecisionConfig& precision, const ModelConfig& model,
                     const std::vector<MappedParameter>& parameters) {
  const Recipe recipe(precision, model.blocks());
  for (const MappedParameter& parameter : parameters) {
    if (parameter.linear.empty()) continue;
    const LayerId id{parameter.linear, parameter.block};
    const LinearPrecision layer = recipe.at(id, 1.0);
    if (!layer[Operand::fprop_w] || recipe.stays_fp8(id)) continue;
    add(parameter.linear, layer, kProgramRemedy);
  }
}

Nvfp4Plan::Nvfp4Plan(const std::map<std::string, LinearPrecision>& layers, std::string_view remedy) {
  const auto has = [](const LinearPrecision& layer, Format format) {
    return layer[Operand::fprop_w] && layer[Operand::fprop_w]->format == format;
  };
  const bool any_nvfp4 =
      std::ranges::any_of(layers, [&](const auto& layer) { return has(layer.second, Format::nvfp4); });
  for (const auto& [name, precision] : layers) {
    const bool stays = !precision[Operand::fprop_w] || (any_nvfp4 && has(precision, Format::fp8));
    if (!stays) add(name, precision, remedy);
  }
}

void Nvfp4Plan::add(const std::string& layer, const LinearPrecision& precision, std::string_view remedy) {
  check_servable(layer, precision, remedy);
  layers_.emplace(layer, *precision[Operand::fprop_w]);
  note_only_in_training(precision, only_in_training_);
}

void Nvfp4Plan::require_layers() const {
  TETRAD_CHECK(!layers_.empty(),
               "no layer of this model has NVFP4 weights at the end of training: export it with --to hf, or "
               "quantize it now with --precision nvfp4");
}

const QuantSpec* Nvfp4Plan::find(const MappedParameter& parameter) const {
  const auto found = layers_.find(parameter.linear);
  return found == layers_.end() ? nullptr : &found->second;
}

std::span<const std::byte> Nvfp4Weight::code_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t bytes = cols / 2;
  return std::span(codes).subspan(static_cast<std::size_t>(first * bytes),
                                  static_cast<std::size_t>(count * bytes));
}

std::span<const std::byte> Nvfp4Weight::scale_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t bytes = cols / nvfp4::kBlock;
  return std::span(scales).subspan(static_cast<std::size_t>(first * bytes),
                                   static_cast<std::size_t>(count * bytes));
}

Nvfp4Scale nvfp4_scale(float amax, Scaling scaling) {
  if (amax == 0) return {};
  const float encode = nvfp4::tensor_scale(amax, scaling).encode;
  return {encode, nvfp4::alpha_amax(amax, scaling) / nvfp4::tensor_range(scaling)};
}

Nvfp4Weight quantize_weight(Backend& cpu, const MappedParameter& parameter, const QuantSpec& spec,
                            std::span<const float> values) {
  QuantizedTensor quantized;
  QuantizeOptions options;
  options.telemetry = Telemetry::none;
  cpu.quantize(view_of(values.data(), parameter.rows(), parameter.columns()), spec, options, quantized);
  Nvfp4Weight weight;
  weight.rows = quantized.rows;
  weight.cols = quantized.cols;
  const auto copy = [](const Buffer& buffer) {
    return std::vector<std::byte>(buffer.data(), buffer.data() + buffer.size());
  };
  weight.codes = copy(quantized.codes);
  weight.scales = copy(quantized.scales);
  weight.scale = nvfp4_scale(quantized.amax, spec.scaling);
  constexpr std::size_t kCodeBytes = nvfp4::kBlock / 2;
  for (std::size_t block = 0; block < weight.scales.size(); ++block) {
    const auto byte = std::to_integer<std::uint8_t>(weight.scales[block]);
    if (byte > E4m3::kMaxCode)
      throw Error(fmt::format("{} has the scale byte 0x{:02X}; this is a bug", parameter.name, byte),
                  ExitCode::failure);
    if (byte != 0) continue;
    weight.scales[block] = std::byte{kSmallestScale};
    for (std::size_t i = 0; i < kCodeBytes; ++i) weight.codes[block * kCodeBytes + i] &= kSigns;
  }
  return weight;
}

}  // namespace tetrad
