// SPDX-License-Identifier: Apache-2.0
#pragma once
// A language model: embedding, a pattern of blocks, norm, head.
//
//   x0 = embedding(tokens);  x[i+1] = block_i(x[i]);  loss = cross_entropy(head(norm(x[n])), targets)

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tetrad/model/block.h"
#include "tetrad/model/config.h"
#include "tetrad/model/gradient_units.h"
#include "tetrad/model/memory_levers.h"
#include "tetrad/model/parameter.h"
#include "tetrad/model/pass.h"
#include "tetrad/model/residual_stream.h"
#include "tetrad/model/scratch.h"

namespace tetrad {

/// A prompt is read in parts that end at multiples of so many tokens, so that others can be served in
/// between. Where activations are quantized each part has its own scale: whoever wants the same bits cuts the
/// same way.
inline constexpr std::int64_t kPromptPart = 128;

/// A sequence that is being read or written token by token.
class Session {
 public:
  std::int64_t length() const { return length_; }

 private:
  friend class Decoder;
  std::vector<std::unique_ptr<BlockState>> states_;
  std::int64_t length_ = 0;
};

/// Further tokens of a sequence, and whether the logits after the last of them are all that is wanted.
struct NewTokens {
  Session* session = nullptr;
  std::span<const std::int32_t> tokens;
  bool last_only = true;
};

/// Takes logits [rows, vocab] in the program's memory; `first` rows were handed over before.
using LogitsSink = std::function<void(std::int64_t first, std::span<const float> logits)>;

class Decoder {
 public:
  /// Room for microbatches of up to `batch` sequences of `sequence` tokens; activations are stored as
  /// `storage`.
  /// With levers.reads_only nothing may be trained or differentiated.
  /// `shards`: of ranks that share the weights; null: this one has all of them.
  Decoder(Backend& backend, ModelConfig config, std::int64_t batch, std::int64_t sequence,
          DType storage = DType::bf16, const MemoryLevers& levers = {}, WeightShards* shards = nullptr);

  const ModelConfig& config() const { return config_; }
  Backend& backend() const { return backend_; }
  /// Tokens of a sequence of a microbatch.
  std::int64_t sequence() const { return sequence_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() { return parameters_; }
  const std::vector<GradientUnit>& gradient_units() const { return gradient_units_; }
  /// Null: this rank has all weights.
  WeightShards* shards() const { return embedding_->shards; }
  std::vector<Linear*> linears();

  /// Random weights that depend on the seed and on each parameter's name and shape only.
  void initialize(std::uint64_t seed);
  /// Must be called after weights were changed from outside.
  void weights_changed();
  void clear_gradients();

  /// Adds d(sum of losses * gradient_scale) to the gradients; `losses` [tokens] in nats. Whole microbatch.
  /// `document_starts` (ops/documents.h) are one per token; none: every sequence is one document.
  void train(Pass& pass, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
             float gradient_scale, std::span<float> losses,
             std::span<const std::int32_t> document_starts = {});
  /// train() once more on the tokens that it was last given, without waiting for the losses: what a
  /// measurement repeats.
  void differentiate(Pass& pass, float gradient_scale);

  /// The losses alone; any number of whole sequences up to `batch`.
  void evaluate(Pass& pass, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                std::span<float> losses, std::span<const std::int32_t> document_starts = {});

  /// A new sequence of at most `capacity` tokens.
  Session start(std::int64_t capacity) const;
  /// Bytes of a session with room for so many tokens.
  std::int64_t session_bytes(std::int64_t capacity) const;
  /// Reads further tokens, in parts of a prompt; logits [tokens, vocab] of what follows each, or, if
  /// `last_only`, [1, vocab].
  std::vector<float> extend(Pass& pass, Session& session, std::span<const std::int32_t> tokens,
                            bool last_only);
  /// The same, with the logits handed over as they come.
  void extend(Pass& pass, Session& session, std::span<const std::int32_t> tokens, bool last_only,
              const LogitsSink& sink);
  /// Reads tokens of several different sequences in one pass. The wanted logits go to `sink` in order, a part
  /// at a time, so that [tokens, vocab] never exists as a whole where that is large.
  void extend(Pass& pass, std::span<const NewTokens> sequences, const LogitsSink& sink);
  /// Whether what is computed of a sequence does not depend on which others are read in the same pass.
  bool sequences_are_independent(const Pass& pass);

  /// Bytes of everything that is kept between forward and backward or passes through, on the device.
  std::size_t activation_bytes() const;
  std::size_t activation_bytes_on_host() const { return residual_.bytes_on_host(); }
  /// The bytes among them that blocks keep between forward and backward besides their inputs.
  std::size_t saved_bytes() const;

 private:
  void make_gradients();
  void upload(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
              std::span<const std::int32_t> document_starts);
  /// Runs the first `count` tokens that were uploaded. Returns what the head reads, which is valid until a
  /// block runs.
  MatrixView forward(Pass& pass, std::int64_t count);
  /// Begins to gather what products of this block, if there is one, will read.
  void fetch_weights(const Pass& pass, std::size_t block, bool backward);
  void check_count(std::size_t count) const;
  /// `hidden`: the last hidden states of the wanted tokens.
  void hand_over_logits(const MatrixView& hidden, const LogitsSink& sink);
  const Parameter& head_parameter() const { return config_.tied ? *embedding_ : *head_; }
  Parameter& head_parameter() { return config_.tied ? *embedding_ : *head_; }
  MatrixView head_weight();
  /// For products, where it stays as it is.
  GemmOperand packed_head();
  /// All rows, f32.
  const float* embedding_table();

  Backend& backend_;
  ModelConfig config_;
  std::int64_t batch_;
  std::int64_t sequence_;
  DType storage_;
  Scratch scratch_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<GradientUnit> gradient_units_;
  std::vector<Buffer> gradient_memory_;  //!< where parameters share it
  Parameter* embedding_ = nullptr;
  Parameter* final_norm_weight_ = nullptr;
  Parameter* head_ = nullptr;  //!< null if tied
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<NormLayer> final_norm_;
  ResidualStream residual_;
  bool reads_only_;
  Tensor residual_gradient_;        //!< [tokens, hidden]
  Tensor tokens_, targets_;         //!< the microbatch, i32
  Tensor document_starts_;          //!< like them, once there are any
  bool has_documents_ = false;      //!< whether this microbatch has some
  Tensor losses_;                   //!< one per token, f32
  Tensor head_copy_;                //!< the head's weights in the storage type
  std::uint64_t head_version_ = 0;  //!< version of the head that was copied
  PackedOperand packed_head_;
  std::uint64_t packed_head_version_ = 0;
  Tensor table_;  //!< the embedding, if ranks share it
  std::uint64_t table_version_ = 0;
};

}  // namespace tetrad
