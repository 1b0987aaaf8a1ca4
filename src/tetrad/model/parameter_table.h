// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a model, said once: building a decoder, counting, predicting memory, initial values and
// the formats of other programs all read this table.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/model/config.h"

namespace tetrad {

/// The letters of a pattern: attention, feed-forward, Mamba-2.
inline constexpr std::string_view kBlockLetters = "*-M";

/// How a parameter starts (initialize.cpp has the distributions).
enum class Initial : std::uint8_t {
  normal,
  residual,  //!< normal, smaller: it writes to the residual stream
  ones,
  zeros,
  conv,       //!< uniform, by the kernel's width
  decay,      //!< Mamba-2's A, as its logarithm
  time_step,  //!< Mamba-2's bias of the time step
};

/// Rows of a parameter that other programs keep as a tensor of their own: queries, keys and values of one
/// projection.
struct ParameterPart {
  std::string name;
  std::int64_t rows;
};

struct ParameterSpec {
  std::string name;                 //!< within its block: "qkv.weight"; "embedding.weight" outside of blocks
  std::vector<std::int64_t> shape;  //!< as files have it
  Initial initial = Initial::normal;
  bool decays = true;                     //!< weight decay applies
  bool is_linear = false;                 //!< the weight [out, in] of a linear layer
  std::vector<ParameterPart> parts = {};  //!< empty: one
  std::int64_t block = -1;                //!< index in the pattern; -1: outside of blocks

  /// Whether ranks may share it by rows: matrices that products read, and the embedding, nearly all there is.
  bool may_be_shared() const { return is_linear || (block < 0 && shape.size() > 1); }
  /// "blocks.3.qkv.weight"
  std::string full_name() const;
  /// The name of its linear layer within the block: "qkv".
  std::string linear_name() const;
};

/// The parameters of a block with this letter of a pattern. Throws Error for an unknown letter.
std::vector<ParameterSpec> block_parameters(const ModelConfig& config, char letter);

/// Every parameter, in the order of checkpoints: embedding, blocks, norm, head unless it is tied.
std::vector<ParameterSpec> model_parameters(const ModelConfig& config);

/// A linear layer of a block.
struct LinearShape {
  std::string name;  //!< within its block: "qkv"
  std::int64_t out, in;
};

/// The two linear layers of a block with this letter: the one that reads the norm, the one that writes to the
/// residual stream.
std::vector<LinearShape> linear_shapes(const ModelConfig& config, char letter);

}  // namespace tetrad
