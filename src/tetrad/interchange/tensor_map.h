// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tensors of other formats are which rows of which parameter of ours: model/parameter_table.h with the
// names of tensor_names.h, for export and import alike.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/interchange/tensor_names.h"
#include "tetrad/model/config.h"

namespace tetrad {

/// The family whose programs compute what this model computes. Throws Error (bad input) that says what does
/// not fit if there is none.
Family family_of(const ModelConfig& model);

/// What a piece is to those who need to know more than its name.
enum class Role : std::uint8_t {
  other,
  query,  //!< llama.cpp wants the rows of Llama's queries and keys in another order
  key,
};

/// Rows of a parameter that are one tensor on the other side, with the same elements in the same order.
struct Piece {
  TensorNames names;
  std::vector<std::int64_t> shape;  //!< as Hugging Face has it
  std::int64_t first_row = 0;       //!< of the parameter, whose rows are its first dimension
  Role role = Role::other;
};

struct MappedParameter {
  std::string name;                 //!< ours: "blocks.0.qkv.weight"
  std::vector<std::int64_t> shape;  //!< ours
  std::vector<Piece> pieces;        //!< in the order of their rows, all of which they cover
  std::int64_t block = -1;          //!< index in the pattern; -1: outside of blocks
  std::string linear = {};          //!< name of the linear layer whose weight this is; empty: of none
  /// A second copy of a tied embedding, which readers accept if it is equal.
  std::optional<Piece> copy = {};
  bool writes_copy = false;  //!< transformers ties the heads of Llama and Qwen3, but not Nemotron-H's

  std::int64_t rows() const { return shape.front(); }
  std::int64_t columns() const;  //!< elements of a row; 1 for vectors
};

/// Every parameter of the model, in the order in which Decoder makes them.
std::vector<MappedParameter> tensor_map(const ModelConfig& model, Family family);

/// The module that a tensor belongs to: "model.norm" of "model.norm.weight".
std::string module_of(const std::string& tensor);

/// Elements of a tensor.
std::int64_t element_count(const std::vector<std::int64_t>& shape);

}  // namespace tetrad
