// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>

#include "tetrad/core/error.h"
#include "tetrad/model/block.h"

namespace tetrad {
namespace {

/// Keys and values of the tokens so far.
struct AttentionState final : BlockState {
  Tensor keys, values;  //!< [capacity, kv_heads * head_dim]
  std::int64_t length = 0;
};

/// y = x + out(attention(rope(qkv(norm(x))))). Queries, keys and values lie side by side in one matrix.
///
/// With model.qk_norm, each head of the queries and of the keys has a norm before positions. The projection
/// is then kept as it is, for the gradients of these norms, and what attention reads of it are the values;
/// queries and keys lie in a matrix of their own.
class AttentionBlock final : public Block {
 public:
  explicit AttentionBlock(const BlockContext& context)
      : backend_(context.backend),
        scratch_(context.scratch),
        shape_{context.batch,           context.sequence,
               context.config.heads,    context.config.kv_heads,
               context.config.head_dim, 1.0f / std::sqrt(static_cast<float>(context.config.head_dim))},
        storage_(context.storage),
        norm_(context.backend, context.parameter("norm.weight"), context.config.norm_epsilon,
              context.tokens()),
        qkv_(context.make_linear(Place::first, "qkv")),
        out_(context.make_linear(Place::second, "out")),
        keep_(context.keep),
        by_parts_(context.levers.attention_by_parts),
        projected_(context.make_saved(Scratch::wide, qkv_.out_features())),
        attended_(context.make_saved(Scratch::second_input, q_width())),
        log_sum_exp_(backend_, scratch_, Scratch::sums, keep_ != Keep::nothing, DType::f32, 1,
                     context.tokens() * shape_.heads) {
    if (context.config.qk_norm) head_norms_.emplace(context, shape_);
    if (!context.config.rope) return;
    const RopeConfig& rope = *context.config.rope;
    const std::vector<float> frequencies =
        rope_frequencies(shape_.head_dim, rope.theta, rope.scaling ? &*rope.scaling : nullptr);
    frequencies_ = context.backend.make_tensor(DType::f32, 1, shape_.head_dim / 2);
    backend_.upload(std::as_bytes(std::span(frequencies)), frequencies_.bytes());
  }

  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) override {
    finish(pass, x, attend(pass, x), y);
  }

  void extend(Pass& pass, const MatrixView& x, const MutableMatrixView& y,
              std::span<const SequencePart> parts) override {
    const MutableMatrixView projected =
        scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, qkv_.out_features());
    const MutableMatrixView attended = scratch_.get(Scratch::gradient_middle, x.dtype, x.rows, q_width());
    qkv_.forward(pass, normalize(pass, x), projected);
    if (head_norms_) normalize_heads(projected, projected);
    std::int64_t first = 0;
    for (const SequencePart& part : parts) {
      decode(rows(projected, first, part.tokens), rows(attended, first, part.tokens),
             dynamic_cast<AttentionState&>(*part.state));
      first += part.tokens;
    }
    finish(pass, x, as_const(attended), y);
  }

  std::unique_ptr<BlockState> make_state(std::int64_t capacity) const override {
    auto state = std::make_unique<AttentionState>();
    state->keys = backend_.make_tensor(storage_, capacity, kv_width());
    state->values = backend_.make_tensor(storage_, capacity, kv_width());
    return state;
  }

  std::int64_t state_bytes(std::int64_t capacity) const override {
    return 2 * capacity * kv_width() * bits_of(storage_) / 8;
  }

  std::vector<Linear*> linears() override { return {&qkv_, &out_}; }
  std::size_t saved_bytes() const override {
    return projected_.bytes() + attended_.bytes() + log_sum_exp_.bytes() + qkv_.saved_bytes() +
           out_.saved_bytes() + (head_norms_ ? head_norms_->normed.bytes() : 0);
  }

 private:
  /// Of queries and of keys, with what they give, which is rotated there.
  struct HeadNorms {
    HeadNorms(const BlockContext& context, const AttentionShape& shape)
        : queries(context.backend, context.parameter("q_norm.weight"), context.config.norm_epsilon,
                  context.tokens(), shape.heads),
          keys(context.backend, context.parameter("k_norm.weight"), context.config.norm_epsilon,
               context.tokens(), shape.kv_heads),
          normed(context.backend, context.scratch, Scratch::heads, context.keep == Keep::all, context.storage,
                 context.tokens(), (shape.heads + shape.kv_heads) * shape.head_dim) {}

    NormLayer queries, keys;
    Saved normed;  //!< [tokens, q | k]
  };

  std::int64_t q_width() const { return shape_.heads * shape_.head_dim; }
  std::int64_t kv_width() const { return shape_.kv_heads * shape_.head_dim; }
  template <typename View>
  View queries(const View& qkv) const {
    return columns(qkv, 0, q_width());
  }
  template <typename View>
  View keys(const View& qkv) const {
    return columns(qkv, q_width(), kv_width());
  }
  template <typename View>
  View values(const View& qkv) const {
    return columns(qkv, q_width() + kv_width(), kv_width());
  }

  void restore(Pass& pass, const MatrixView& x) override {
    if (keep_ == Keep::nothing)
      out_.restore(pass, attend(pass, x));
    else if (qkv_.wants_input(pass))
      qkv_.restore(pass, normalize(pass, x));
    if (head_norms_ && keep_ == Keep::products)
      with_positions(projected_.view(), shape_.sequence, pass.document_starts);
  }

  void differentiate(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) override {
    const MutableMatrixView dattended = scratch_.get(Scratch::gradient_middle, x.dtype, x.rows, q_width());
    const MutableMatrixView dqkv = scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, qkv_.out_features());
    const MutableMatrixView normed = scratch_.get(Scratch::gradient_narrow, x.dtype, x.rows, x.cols);
    const MatrixView qkv = as_const(projected_.view());
    const MatrixView qk = head_norms_ ? as_const(head_norms_->normed.view()) : qkv;
    out_.backward(pass, as_const(dx), &dattended);
    backend_.attention(AttentionBackward{
        shape_, queries(qk), keys(qk), values(qkv), as_const(attended_.view()), log_sum_exp_.f32(),
        as_const(dattended), queries(dqkv), keys(dqkv), values(dqkv), pass.document_starts, by_parts_});
    rotate(dqkv, shape_.sequence, 0, true, pass.document_starts);
    if (head_norms_) {
      head_norms_->queries.backward(queries(qkv), as_const(queries(dqkv)), queries(dqkv), Accumulate::no);
      head_norms_->keys.backward(keys(qkv), as_const(keys(dqkv)), keys(dqkv), Accumulate::no);
    }
    qkv_.backward(pass, as_const(dqkv), &normed);
    norm_.backward(x, as_const(normed), dx);
  }

  /// New tokens of one sequence: their keys and values join those before them.
  void decode(const MutableMatrixView& projected, const MutableMatrixView& attended, AttentionState& state) {
    const std::int64_t tokens = projected.rows;
    TETRAD_CHECK(state.length + tokens <= state.keys.rows(),
                 "the sequence would grow to {} tokens, but room was made for {}", state.length + tokens,
                 state.keys.rows());
    rotate(projected, tokens, state.length, false, nullptr);
    const MatrixView qkv = as_const(projected);
    backend_.cast({keys(qkv), rows(state.keys.view(), state.length, tokens)});
    backend_.cast({values(qkv), rows(state.values.view(), state.length, tokens)});
    AttentionShape shape = shape_;
    shape.batch = 1;
    shape.sequence = tokens;
    backend_.attention(AttentionDecode{shape, state.length, queries(qkv),
                                       rows(state.keys.const_view(), 0, state.length + tokens),
                                       rows(state.values.const_view(), 0, state.length + tokens), attended});
    state.length += tokens;
  }

  MatrixView normalize(const Pass& pass, const MatrixView& x) {
    const MutableMatrixView normed = qkv_.input(pass, x.rows);
    norm_.forward(x, normed);
    return as_const(normed);
  }

  /// The input of `out_`.
  MatrixView attend(Pass& pass, const MatrixView& x) {
    AttentionShape shape = shape_;
    shape.batch = x.rows / shape.sequence;  // evaluation may have fewer sequences
    const MutableMatrixView projected = projected_.view(x.rows);
    const MutableMatrixView attended = attended_.view(x.rows);
    qkv_.forward(pass, normalize(pass, x), projected);
    const MatrixView qk = with_positions(projected, shape.sequence, pass.document_starts);
    backend_.attention(AttentionForward{shape, queries(qk), keys(qk), values(as_const(projected)), attended,
                                        log_sum_exp_.f32(), pass.document_starts});
    return as_const(attended);
  }

  /// The queries and keys that attention reads, of a projection that begins at position 0.
  MatrixView with_positions(const MutableMatrixView& projected, std::int64_t sequence,
                            const std::int32_t* document_starts) {
    MutableMatrixView qk = projected;
    if (head_norms_) {
      qk = head_norms_->normed.view(projected.rows);
      normalize_heads(projected, qk);
    }
    rotate(qk, sequence, 0, false, document_starts);
    return as_const(qk);
  }

  void normalize_heads(const MutableMatrixView& projected, const MutableMatrixView& qk) {
    head_norms_->queries.forward(as_const(queries(projected)), queries(qk));
    head_norms_->keys.forward(as_const(keys(projected)), keys(qk));
  }

  /// Queries and keys are neighbours: one call rotates both.
  void rotate(const MutableMatrixView& qkv, std::int64_t sequence, std::int64_t first_position, bool inverse,
              const std::int32_t* document_starts) {
    if (frequencies_.size() == 0) return;
    backend_.rope(Rope{columns(qkv, 0, q_width() + kv_width()), sequence, shape_.head_dim, first_position,
                       frequencies_.f32(), inverse, document_starts});
  }

  void finish(Pass& pass, const MatrixView& x, const MatrixView& attended, const MutableMatrixView& y) {
    const MutableMatrixView out = scratch_.get(Scratch::mixed, x.dtype, x.rows, x.cols);
    out_.forward(pass, attended, out);
    backend_.add({x, as_const(out), y});
  }

  Backend& backend_;
  Scratch& scratch_;
  AttentionShape shape_;
  DType storage_;
  NormLayer norm_;
  Linear qkv_;
  Linear out_;
  Keep keep_;
  bool by_parts_;
  Saved projected_;     //!< [tokens, q | k | v], rotated unless there are head norms
  Saved attended_;      //!< [tokens, heads * head_dim]
  Saved log_sum_exp_;   //!< [batch, heads, sequence]
  Tensor frequencies_;  //!< [head_dim / 2]; empty: no positions
  std::optional<HeadNorms> head_norms_;
};

}  // namespace

std::unique_ptr<Block> make_attention_block(const BlockContext& context) {
  return std::make_unique<AttentionBlock>(context);
}

}  // namespace tetrad
