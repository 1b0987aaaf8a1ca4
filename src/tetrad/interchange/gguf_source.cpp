// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/interchange/values.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

/// Dimensions of 1 come and go between programs; the elements and their order are the same.
std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

void GgufPieceSource::claim(const Piece& piece) {
  const std::string& name = piece.names.gguf;
  const GgufTensor* tensor = header_.find_tensor(name);
  TETRAD_CHECK(tensor != nullptr, "{}: the tensor {} is missing: fetch or export the file again",
               header_.where, name);
  const std::vector<std::int64_t> shape = gguf_shape(piece, model_);
  TETRAD_CHECK(without_ones(tensor->shape) == without_ones(shape),
               "{}: the tensor {} has the shape [{}], but the metadata makes it [{}]: export the file again",
               header_.where, name, fmt::join(tensor->shape, ", "), fmt::join(shape, ", "));
  claimed_.insert(name);
  if (tensor->type != GgmlType::nvfp4) return;
  const std::string scale = gguf_scale_name(name);
  if (const GgufTensor* found = header_.find_tensor(scale)) {
    TETRAD_CHECK(found->type == GgmlType::f32 && element_count(found->shape) == 1,
                 "{}: {} is not one F32 number: export the file again", header_.where, scale);
    claimed_.insert(scale);
  }
}

void GgufPieceSource::check_all_claimed() const {
  for (const auto& [name, place] : header_.tensors)
    TETRAD_CHECK(claimed_.contains(name) || name.ends_with(".input_scale"),
                 "{}: the model that it describes has no tensor {}: its kind is not supported", header_.where,
                 quoted_name(name));
}

void GgufPieceSource::read(const Piece& piece, std::span<float> out) const {
  const std::string& name = piece.names.gguf;
  std::vector<float> theirs(out.size());
  decode(*header_.find_tensor(name), theirs);
  if (gguf_has_negative_exponential(piece))
    for (float& value : theirs) value = static_cast<float>(std::log(-double{value}));
  const auto columns = out.size() / static_cast<std::size_t>(piece.shape.front());
  for (std::size_t row = 0; row * columns < out.size(); ++row) {
    const auto to = static_cast<std::size_t>(gguf_source_row(piece, model_, static_cast<std::int64_t>(row)));
    std::memcpy(out.data() + to * columns, theirs.data() + row * columns, columns * sizeof(float));
  }
  TETRAD_CHECK(std::ranges::all_of(out, [](float value) { return std::isfinite(value); }),
               "{}: the tensor {} holds a value that is not finite: fetch or export the file again",
               header_.where, name);
}

void GgufPieceSource::decode(const GgufTensor& tensor, std::span<float> out) const {
  switch (tensor.type) {
    case GgmlType::f32:
      return decode_values(threads_, DType::f32, file_.bytes(tensor.name), out);
    case GgmlType::f16:
      return decode_values(threads_, DType::f16, file_.bytes(tensor.name), out);
    case GgmlType::bf16:
      return decode_values(threads_, DType::bf16, file_.bytes(tensor.name), out);
    case GgmlType::nvfp4:
      return decode_blocks(tensor, out);
  }
}

void GgufPieceSource::decode_blocks(const GgufTensor& tensor, std::span<float> out) const {
  float scale = 1;
  if (const std::string name = gguf_scale_name(tensor.name); header_.find_tensor(name) != nullptr)
    std::memcpy(&scale, file_.bytes(name).data(), sizeof(scale));
  std::vector<std::byte> codes(out.size() / 2);
  std::vector<std::byte> scales(out.size() / nvfp4::kBlock);
  const std::byte* blocks = file_.bytes(tensor.name).data();
  threads_.parallel_for(static_cast<std::int64_t>(out.size()) / kGgmlNvfp4Values, [&](std::int64_t block) {
    unpack_ggml_block(blocks + block * kGgmlNvfp4Bytes, codes.data() + block * kGgmlNvfp4Values / 2,
                      scales.data() + block * kGgmlNvfp4Values / nvfp4::kBlock);
  });
  decode_nvfp4(threads_, codes, scales, scale, out);
}

}  // namespace tetrad
