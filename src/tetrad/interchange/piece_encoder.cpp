// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/piece_encoder.h"

#include "tetrad/core/error.h"
#include "tetrad/interchange/values.h"

namespace tetrad {

std::span<const float> rows_of(const MappedParameter& parameter, const Piece& piece,
                               std::span<const float> values) {
  const std::int64_t columns = parameter.columns();
  return values.subspan(static_cast<std::size_t>(piece.first_row * columns),
                        static_cast<std::size_t>(element_count(piece.shape)));
}

DType DenseEncoder::dtype_of(const MappedParameter& parameter) const {
  for (const char* name : {".a_log", ".d", ".dt_bias"})
    if (parameter.name.ends_with(name)) return DType::f32;
  return dtype_;
}

std::vector<TensorDeclaration> DenseEncoder::declare(const MappedParameter& parameter) const {
  std::vector<TensorDeclaration> tensors;
  for (const Piece& piece : parameter.pieces)
    tensors.push_back({piece.names.hf, dtype_of(parameter), piece.shape});
  if (parameter.writes_copy)
    tensors.push_back({parameter.copy->names.hf, dtype_of(parameter), parameter.shape});
  return tensors;
}

void DenseEncoder::write(const MappedParameter& parameter, std::span<const float> values,
                         ShardedWriter& out) {
  const DType dtype = dtype_of(parameter);
  std::vector<std::byte> bytes;
  for (const Piece& piece : parameter.pieces) {
    const std::span<const float> rows = rows_of(parameter, piece, values);
    bytes.resize(rows.size() * static_cast<std::size_t>(bits_of(dtype)) / 8);
    TETRAD_CHECK(encode_values(threads_, rows, dtype, bytes),
                 "{} holds values that are too large for {}: export with the type bf16 or f32",
                 parameter.name, name_of(dtype));
    out.write(piece.names.hf, bytes);
  }
  if (parameter.writes_copy) out.write(parameter.copy->names.hf, bytes);  // a tied embedding is one piece
}

}  // namespace tetrad
