// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tensors of a family are called by Hugging Face's transformers and by llama.cpp's GGUF.

#include <cstdint>
#include <string>
#include <string_view>

namespace tetrad {

enum class Family : std::uint8_t {
  llama,
  qwen3,  //!< a Llama with norms of queries and keys
  nemotron_h,
};

/// Whether a layer of the family is an attention and a feed-forward block of ours.
constexpr bool has_paired_blocks(Family family) { return family != Family::nemotron_h; }

struct TensorNames {
  std::string hf;    //!< "model.layers.3.self_attn.q_proj.weight"
  std::string gguf;  //!< "blk.3.attn_q.weight"
};

/// Of a parameter in model/parameter_table.h outside of blocks.
TensorNames names_outside(Family family, std::string_view parameter);

/// Of a part of a parameter of a block; `part` is empty where the parameter is one. `block` and `letter` are
/// those of the pattern: a layer of Llama is two of our blocks.
TensorNames names_in_block(Family family, std::int64_t block, char letter, std::string_view parameter,
                           std::string_view part);

}  // namespace tetrad
