// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/piece_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/interchange/values.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

constexpr std::string_view kTheirs = "backbone.";
constexpr std::string_view kRenamed = "model.";
constexpr std::string_view kWhatIsRead =
    "only BF16, F16, F32 and NVFP4 (ModelOpt's or compressed-tensors') weights are read; save the model so";

/// What older programs and serving formats save besides the weights, and nothing of ours depends on.
bool is_ignored(std::string_view name) {
  constexpr std::array<std::string_view, 3> kEndings = {".rotary_emb.inv_freq", ".k_scale", ".v_scale"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); }) ||
         std::ranges::any_of(kServingNames,
                             [&](const ServingNames& names) { return name.ends_with(names.input_scale); });
}

}  // namespace

HfPieceSource::HfPieceSource(Threads& threads, const TensorTable& tensors)
    : threads_(threads), tensors_(tensors) {
  renamed_ = tensors_.find("backbone.embeddings.weight") == nullptr &&
             tensors_.find("model.embeddings.weight") != nullptr;
}

std::string HfPieceSource::local(const std::string& name) const {
  if (!renamed_ || !name.starts_with(kTheirs)) return name;
  return std::string(kRenamed) + name.substr(kTheirs.size());
}

const ServingNames* HfPieceSource::nvfp4_names(const Piece& piece) const {
  if (piece.shape.size() != 2 || piece.shape[1] % nvfp4::kBlock != 0) return nullptr;
  const std::string name = local(piece.names.hf);
  // ModelOpt calls codes as everybody calls plain values.
  if (const TensorInfo* info = tensors_.find(name))
    return info->dtype == DType::u8 ? &names_of(ServingFormat::modelopt) : nullptr;
  const ServingNames& other = names_of(ServingFormat::compressed_tensors);
  return tensors_.find(module_of(name).append(other.codes)) != nullptr ? &other : nullptr;
}

void HfPieceSource::take(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype) {
  const TensorInfo& info = tensors_.get(name, shape);
  TETRAD_CHECK(info.dtype == dtype, "{}: the tensor {} is {} instead of {}: {}", tensors_.where(),
               quoted_name(name), name_of(info.dtype), name_of(dtype), kWhatIsRead);
  claimed_.insert(name);
}

void HfPieceSource::take_scalar(const std::string& name) {
  const TensorInfo* info = tensors_.find(name);
  TETRAD_CHECK(info != nullptr && info->dtype == DType::f32 && element_count(info->shape) == 1,
               "{}: {} is missing, or is not one F32 number: an NVFP4 weight cannot be read without it; "
               "fetch or export the model again",
               tensors_.where(), quoted_name(name));
  claimed_.insert(name);
}

void HfPieceSource::claim(const Piece& piece) {
  const std::string name = local(piece.names.hf);
  const ServingNames* names = nvfp4_names(piece);
  if (names == nullptr) {
    const TensorInfo& info = tensors_.get(name, piece.shape);
    TETRAD_CHECK(is_float_weight(info.dtype), "{}: the tensor {} is {}: {}", tensors_.where(),
                 quoted_name(name), name_of(info.dtype), kWhatIsRead);
    claimed_.insert(name);
    return;
  }
  const auto of_module = [&](std::string_view ending) { return module_of(name).append(ending); };
  take(of_module(names->codes), {piece.shape[0], piece.shape[1] / 2}, DType::u8);
  take(of_module(kBlockScales), {piece.shape[0], piece.shape[1] / nvfp4::kBlock}, DType::f8_e4m3);
  take_scalar(of_module(names->weight_scale));
}

bool HfPieceSource::claim_copy(const Piece& copy) {
  if (tensors_.find(copy.names.hf) == nullptr) return false;
  claim(copy);
  return true;
}

void HfPieceSource::check_all_claimed() const {
  for (const std::string& name : tensors_.names())
    TETRAD_CHECK(claimed_.contains(name) || is_ignored(name),
                 "{}: the model that config.json describes has no tensor {}: is it that of these weights?",
                 tensors_.where(), quoted_name(name));
}

void HfPieceSource::read(const Piece& piece, std::span<float> out) const {
  const std::string name = local(piece.names.hf);
  std::vector<std::byte> memory;
  if (const ServingNames* names = nvfp4_names(piece))
    read_nvfp4(module_of(name), *names, out);
  else
    decode_values(threads_, tensors_.find(name)->dtype, tensors_.bytes(name, memory), out);
  const auto bad = std::ranges::find_if(out, [](float value) { return !std::isfinite(value); });
  TETRAD_CHECK(bad == out.end(),
               "{}: the tensor {} holds a value that is not finite (element {}): fetch the model again, or "
               "export it before it diverged",
               tensors_.where(), quoted_name(name), bad - out.begin());
}

void HfPieceSource::read_nvfp4(const std::string& module, const ServingNames& names,
                               std::span<float> out) const {
  std::vector<std::byte> memory[3];
  const auto bytes = [&](std::string_view ending, std::size_t part) {
    return tensors_.bytes(std::string(module).append(ending), memory[part]);
  };
  float scale = 0;
  std::memcpy(&scale, bytes(names.weight_scale, 0).data(), sizeof(scale));
  TETRAD_CHECK(std::isfinite(scale) && scale > 0,
               "{}: {}{} is {}, and must be above 0: fetch or export the model again", tensors_.where(),
               module, names.weight_scale, scale);
  decode_nvfp4(threads_, bytes(names.codes, 1), bytes(kBlockScales, 2), names.divides ? 1.0f / scale : scale,
               out);
}

std::set<std::string> claim_all(const std::vector<MappedParameter>& parameters, PieceSource& source) {
  std::set<std::string> copied;
  for (const MappedParameter& parameter : parameters) {
    for (const Piece& piece : parameter.pieces) source.claim(piece);
    if (parameter.copy && source.claim_copy(*parameter.copy)) copied.insert(parameter.name);
  }
  source.check_all_claimed();
  return copied;
}

std::vector<float> read_parameter(const MappedParameter& parameter, const PieceSource& source,
                                  bool is_copied) {
  std::vector<float> values(static_cast<std::size_t>(element_count(parameter.shape)));
  const std::int64_t columns = parameter.columns();
  for (const Piece& piece : parameter.pieces)
    source.read(piece, std::span(values).subspan(static_cast<std::size_t>(piece.first_row * columns),
                                                 static_cast<std::size_t>(element_count(piece.shape))));
  if (!is_copied) return values;
  std::vector<float> copy(values.size());
  source.read(*parameter.copy, copy);
  TETRAD_CHECK(copy == values,
               "config.json says that embedding and head are one matrix (tie_word_embeddings), but {} is "
               "another one than {}: correct config.json",
               parameter.copy->names.hf, parameter.pieces.front().names.hf);
  return values;
}

}  // namespace tetrad
