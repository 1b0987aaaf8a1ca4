#include "tetrad/interchange/gguf_source.h"

#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/interchange/values.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {

void GgufPieceSource::read(const Piece& piece, std::span<float> out) {
  const std::string name = gguf_name(piece.name);
  const GgufTensor* tensor = file_.find_tensor(name);
  TETRAD_CHECK(tensor != nullptr, "{}: the tensor {} is missing", file_.where(), name);
  // Dimensions of 1 come and go between programs; the elements and their order are the same.
  TETRAD_CHECK(element_count(tensor->shape) == element_count(piece.shape),
               "{}: the tensor {} has {} elements, the model needs {}", file_.where(), name,
               element_count(tensor->shape), element_count(piece.shape));
  read_.insert(name);
  std::vector<float> theirs(out.size());
  decode(*tensor, theirs);
  if (piece.name.ends_with(".A_log"))
    for (float& value : theirs) value = static_cast<float>(std::log(-double{value}));
  const auto columns = out.size() / static_cast<std::size_t>(piece.shape.front());
  for (std::size_t row = 0; row * columns < out.size(); ++row) {
    const auto to = static_cast<std::size_t>(gguf_source_row(piece, model_, static_cast<std::int64_t>(row)));
    std::memcpy(out.data() + to * columns, theirs.data() + row * columns, columns * sizeof(float));
  }
  for (const float value : out)
    TETRAD_CHECK(std::isfinite(value), "{}: the tensor {} holds a value that is not finite", file_.where(),
                 name);
}

void GgufPieceSource::decode(const GgufTensor& tensor, std::span<float> out) {
  switch (tensor.type) {
    case GgmlType::f32:
      return decode_values(DType::f32, file_.bytes(tensor.name), out);
    case GgmlType::f16:
      return decode_values(DType::f16, file_.bytes(tensor.name), out);
    case GgmlType::bf16:
      return decode_values(DType::bf16, file_.bytes(tensor.name), out);
    case GgmlType::nvfp4:
      return decode_nvfp4(tensor, out);
  }
}

void GgufPieceSource::decode_nvfp4(const GgufTensor& tensor, std::span<float> out) {
  const std::string name = tensor.name.substr(0, tensor.name.rfind('.')) + ".scale";
  float scale = 1;
  if (const GgufTensor* found = file_.find_tensor(name)) {
    TETRAD_CHECK(found->type == GgmlType::f32 && element_count(found->shape) == 1,
                 "{}: {} is not one F32 number", file_.where(), name);
    std::memcpy(&scale, file_.bytes(name).data(), sizeof(scale));
    read_.insert(name);
  }
  const std::span<const std::byte> bytes = file_.bytes(tensor.name);
  parallel_for(static_cast<std::int64_t>(out.size()) / kGgmlNvfp4Values, [&](std::int64_t block) {
    const std::byte* in = bytes.data() + block * kGgmlNvfp4Bytes;
    float* to = out.data() + block * kGgmlNvfp4Values;
    for (int i = 0; i < kGgmlNvfp4Values; ++i) {
      const int run = i / nvfp4::kBlock;
      const int within = i % nvfp4::kBlock;
      const auto pair = std::to_integer<std::uint32_t>(in[4 + run * 8 + within % 8]);
      const std::uint32_t code = within < 8 ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
      to[i] = nvfp4::decode_without_tensor_scale(code, std::to_integer<std::uint32_t>(in[run])) * scale;
    }
  });
}

void GgufPieceSource::check_all_read() const {
  for (const std::string& name : file_.tensor_names())
    TETRAD_CHECK(read_.contains(name) || name.ends_with(".input_scale"),
                 "{}: the model that it describes has no tensor {}", file_.where(), quoted_name(name));
}

}  // namespace tetrad
