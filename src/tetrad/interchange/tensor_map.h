// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which tensors of a Hugging Face checkpoint are which rows of which parameter of ours: the one table that
// export and import share.

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/model/config.h"

namespace tetrad {

enum class Family : std::uint8_t { llama, nemotron_h };

/// The family whose programs compute what this model computes. Throws Error (bad input) that says what does
/// not fit if there is none.
Family family_of(const ModelConfig& model);

/// What a piece is to those who need to know more than its name.
enum class Role : std::uint8_t {
  other,
  query,  //!< llama.cpp wants the rows of queries and keys in another order
  key,
};

/// Rows of a parameter that are one tensor on the other side, with the same elements in the same order.
struct Piece {
  std::string name;  //!< "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  std::int64_t first_row = 0;  //!< of the parameter, whose rows are its first dimension
  Role role = Role::other;
};

struct MappedParameter {
  std::string name;                 //!< ours: "blocks.0.qkv.weight"
  std::vector<std::int64_t> shape;  //!< ours
  std::vector<Piece> pieces;        //!< in the order of their rows, all of which they cover
  std::int64_t block = -1;          //!< of the pattern; -1: outside of the blocks
  std::string linear = {};          //!< name of the linear layer whose weight this is; empty: of none
  /// Of a tied embedding: the name that a second copy of it has, which readers accept if it is equal.
  std::string copy = {};
  bool writes_copy = false;  //!< transformers ties Llama's head, but not Nemotron-H's

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
