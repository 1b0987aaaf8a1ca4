// SPDX-License-Identifier: Apache-2.0
#pragma once
// One mixer of the decoder: y = x + mixer(norm(x)). Attention, feed-forward and Mamba-2 look the same from
// outside.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tetrad/model/config.h"
#include "tetrad/model/linear.h"
#include "tetrad/model/memory_levers.h"
#include "tetrad/model/parameter.h"
#include "tetrad/model/pass.h"
#include "tetrad/model/recompute.h"
#include "tetrad/model/scratch.h"

namespace tetrad {

/// What a block remembers of a sequence that is being generated: keys and values, or a state.
class BlockState {
 public:
  BlockState() = default;
  BlockState(const BlockState&) = delete;
  BlockState& operator=(const BlockState&) = delete;
  virtual ~BlockState() = default;
};

/// New tokens of one sequence, among those of several that lie one after the other.
struct SequencePart {
  std::int64_t tokens;  //!< rows
  BlockState* state;    //!< of the sequence before these tokens
};

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  /// y = x + mixer(norm(x)), [batch * sequence, hidden]. When training, keeps what its Keep says for
  /// backward(), and never x.
  virtual void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) = 0;

  /// `dx` holds the gradient of y and receives that of x; parameters' gradients are added to.
  void backward(Pass& pass, const MatrixView& x, const MutableMatrixView& dx);

  /// The same as forward() for new tokens of sequences, which continue those that their states have seen.
  virtual void extend(Pass& pass, const MatrixView& x, const MutableMatrixView& y,
                      std::span<const SequencePart> parts) = 0;
  virtual std::unique_ptr<BlockState> make_state(std::int64_t capacity) const = 0;
  virtual std::int64_t state_bytes(std::int64_t capacity) const = 0;

  virtual std::vector<Linear*> linears() = 0;
  /// Bytes kept between forward and backward.
  virtual std::size_t saved_bytes() const = 0;

 private:
  /// Computes again what differentiate() needs and forward() did not keep.
  virtual void restore(Pass& pass, const MatrixView& x) = 0;
  virtual void differentiate(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) = 0;
};

/// Parameters by their full names.
using ParameterIndex = std::map<std::string, Parameter*>;

/// What a block is built from and with.
struct BlockContext {
  Backend& backend;
  Scratch& scratch;
  const ModelConfig& config;
  const ParameterIndex& parameters;
  std::int64_t index;  //!< in the pattern
  std::int64_t batch;  //!< sequences of a training microbatch
  std::int64_t sequence;
  DType storage;
  Keep keep;
  const MemoryLevers& levers;
  std::uint32_t& linear_count;

  std::int64_t tokens() const { return batch * sequence; }
  std::string prefix() const { return "blocks." + std::to_string(index) + "."; }
  /// The block's parameter of this name in block_parameters().
  Parameter& parameter(const std::string& name) const { return *parameters.at(prefix() + name); }
  Linear make_linear(Place place, const std::string& name) const;
  /// [tokens, cols] that the block's backward pass reads.
  Saved make_saved(Scratch::Slot slot, std::int64_t cols) const;
};

std::unique_ptr<Block> make_attention_block(const BlockContext& context);
std::unique_ptr<Block> make_mlp_block(const BlockContext& context);
std::unique_ptr<Block> make_mamba2_block(const BlockContext& context);

/// A norm of rows, or of each head of them, with the inverse RMS values that its backward pass needs.
class NormLayer {
 public:
  NormLayer(Backend& backend, Parameter& weight, float epsilon, std::int64_t tokens, std::int64_t heads = 1);
  void forward(const MatrixView& x, const MutableMatrixView& y);
  /// Adds the gradient of x to dx, or writes it there.
  void backward(const MatrixView& x, const MatrixView& dy, const MutableMatrixView& dx,
                Accumulate accumulate = Accumulate::yes);

 private:
  Backend& backend_;
  Parameter& weight_;
  float epsilon_;
  std::int64_t heads_;
  Tensor inverse_rms_;  //!< [1, tokens * heads]
};

}  // namespace tetrad
