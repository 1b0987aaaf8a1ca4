#include "tetrad/interchange/piece_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/interchange/values.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

constexpr std::string_view kTheirs = "backbone.";
constexpr std::string_view kRenamed = "model.";

/// What older programs and serving formats save besides the weights, and nothing of ours depends on.
bool is_ignored(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {".rotary_emb.inv_freq", ".input_scale",
                                                        ".input_global_scale", ".k_scale", ".v_scale"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::string without_weight(const std::string& name) {
  constexpr std::string_view kEnding = ".weight";
  return name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name;
}

}  // namespace

HfPieceSource::HfPieceSource(const std::filesystem::path& folder) : folder_(folder) {
  renamed_ = folder_.find("backbone.embeddings.weight") == nullptr &&
             folder_.find("model.embeddings.weight") != nullptr;
}

std::string HfPieceSource::local(const std::string& name) const {
  if (!renamed_ || !name.starts_with(kTheirs)) return name;
  return std::string(kRenamed) + name.substr(kTheirs.size());
}

const TensorInfo& HfPieceSource::take(const std::string& name, const std::vector<std::int64_t>& shape) {
  const TensorInfo& info = folder_.get(name, shape);
  read_.insert(name);
  return info;
}

void HfPieceSource::read(const Piece& piece, std::span<float> out) {
  const std::string name = local(piece.name);
  const std::string layer = without_weight(name);
  const TensorInfo* plain = folder_.find(name);
  if (plain != nullptr && plain->dtype == DType::u8) return read_nvfp4(layer, name, piece.shape, out);
  if (plain == nullptr && folder_.find(layer + ".weight_packed") != nullptr)
    return read_nvfp4(layer, layer + ".weight_packed", piece.shape, out);
  read_dense(name, piece.shape, out);
}

bool HfPieceSource::read_copy(const std::string& name, const std::vector<std::int64_t>& shape,
                              std::span<float> out) {
  if (folder_.find(name) == nullptr) return false;
  read_dense(name, shape, out);
  return true;
}

void HfPieceSource::read_dense(const std::string& name, const std::vector<std::int64_t>& shape,
                               std::span<float> out) {
  const TensorInfo& info = take(name, shape);
  TETRAD_CHECK(is_float_weight(info.dtype),
               "{}: the tensor {} is {}: only BF16, F16, F32 and NVFP4 weights are read", folder_.where(),
               quoted_name(name), name_of(info.dtype));
  decode_values(info.dtype, folder_.bytes(name), out);
  for (std::size_t i = 0; i < out.size(); ++i)
    TETRAD_CHECK(std::isfinite(out[i]), "{}: the tensor {} holds a value that is not finite (element {})",
                 folder_.where(), quoted_name(name), i);
}

float HfPieceSource::read_scalar(const std::string& name) {
  const TensorInfo* info = folder_.find(name);
  const bool one_element = info != nullptr && element_count(info->shape) == 1;
  TETRAD_CHECK(one_element && info->dtype == DType::f32,
               "{}: {} is missing, or is not one F32 number: an NVFP4 weight cannot be read without it",
               folder_.where(), quoted_name(name));
  read_.insert(name);
  float value = 0;
  std::memcpy(&value, folder_.bytes(name).data(), sizeof(value));
  TETRAD_CHECK(std::isfinite(value) && value > 0, "{}: {} is {}: a scale is a finite number above 0",
               folder_.where(), quoted_name(name), value);
  return value;
}

void HfPieceSource::read_nvfp4(const std::string& layer, const std::string& codes,
                               const std::vector<std::int64_t>& shape, std::span<float> out) {
  TETRAD_CHECK(shape.size() == 2 && shape[1] % nvfp4::kBlock == 0,
               "{}: {} cannot be NVFP4: it is no matrix with a multiple of 16 columns", folder_.where(),
               quoted_name(codes));
  const std::int64_t rows = shape[0];
  const std::int64_t blocks = shape[1] / nvfp4::kBlock;
  const std::string scale_name = layer + ".weight_scale";
  const TensorInfo& packed = take(codes, {rows, shape[1] / 2});
  const TensorInfo& scales = take(scale_name, {rows, blocks});
  TETRAD_CHECK(packed.dtype == DType::u8 && scales.dtype == DType::f8_e4m3,
               "{}: NVFP4 weights have U8 codes and F8_E4M3 scales, but {} is {} and {} is {}",
               folder_.where(), quoted_name(codes), name_of(packed.dtype), quoted_name(scale_name),
               name_of(scales.dtype));
  // ModelOpt stores what to multiply by, compressed-tensors what to divide by.
  const bool divides = codes.ends_with("_packed");
  const float stored = read_scalar(layer + (divides ? ".weight_global_scale" : ".weight_scale_2"));
  const float scale = divides ? 1.0f / stored : stored;
  const auto* code_bytes = reinterpret_cast<const std::uint8_t*>(folder_.bytes(codes).data());
  const auto* scale_bytes = reinterpret_cast<const std::uint8_t*>(folder_.bytes(scale_name).data());
  parallel_for(rows, [&](std::int64_t row) {
    for (std::int64_t col = 0; col < shape[1]; ++col) {
      const std::uint32_t pair = code_bytes[(row * shape[1] + col) / 2];
      const std::uint32_t code = col % 2 == 0 ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
      const std::uint32_t byte = scale_bytes[row * blocks + col / nvfp4::kBlock];
      out[static_cast<std::size_t>(row * shape[1] + col)] =
          nvfp4::decode_without_tensor_scale(code, byte) * scale;
    }
  });
  for (const float value : out)
    TETRAD_CHECK(std::isfinite(value), "{}: {} decodes to a value that is not finite: its scales are damaged",
                 folder_.where(), quoted_name(codes));
}

void HfPieceSource::check_all_read() const {
  for (const std::string& name : folder_.names())
    TETRAD_CHECK(read_.contains(name) || is_ignored(name),
                 "{}: the model that config.json describes has no tensor {}: is it that of these weights?",
                 folder_.where(), quoted_name(name));
}

}  // namespace tetrad
