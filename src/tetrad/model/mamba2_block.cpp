// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/block.h"

namespace tetrad {
namespace {

struct Mamba2State final : BlockState {
  Tensor conv;  //!< [kernel - 1, conv channels]
  Tensor ssm;   //!< [heads, head_dim * state]
};

/// y = x + out(gated_norm(scan(conv(in(norm(x)))), z)). `in` gives [z | x B C | dt] side by side.
class Mamba2Block final : public Block {
 public:
  explicit Mamba2Block(const BlockContext& context)
      : backend_(context.backend),
        scratch_(context.scratch),
        shape_{context.batch,
               context.sequence,
               context.config.mamba.heads,
               context.config.mamba.head_dim,
               context.config.mamba.groups,
               context.config.mamba.state,
               context.config.mamba.chunk},
        kernel_(context.config.mamba.conv),
        epsilon_(context.config.norm_epsilon),
        storage_(context.storage),
        norm_(context.backend, context.parameter("norm.weight"), epsilon_, context.tokens()),
        in_(context.make_linear(Place::first, "in")),
        conv_weight_(context.parameter("conv.weight")),
        conv_bias_(context.parameter("conv.bias")),
        a_log_(context.parameter("a_log")),
        d_(context.parameter("d")),
        dt_bias_(context.parameter("dt_bias")),
        gated_norm_weight_(context.parameter("gated_norm.weight")),
        out_(context.make_linear(Place::second, "out")),
        keep_(context.keep),
        projected_(context.make_saved(Scratch::wide, in_.out_features())),
        convolved_(backend_, scratch_, Scratch::convolved, keep_ == Keep::all, storage_, context.tokens(),
                   shape_.conv_channels()),
        scanned_(context.make_saved(Scratch::scanned, shape_.inner())),
        chunk_states_(backend_, scratch_, Scratch::states, keep_ != Keep::nothing, DType::f32,
                      shape_.batch * shape_.chunks(), shape_.inner() * shape_.state),
        inverse_rms_(context.backend.make_tensor(DType::f32, context.tokens(), shape_.groups)) {}

  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) override {
    in_.forward(pass, normalize(pass, x), projected_.view(x.rows));
    convolve(pass, x.rows);
    scan(pass, x.rows);
    finish(pass, x, as_const(scanned_.view(x.rows)), as_const(projected_.view(x.rows)), y);
  }

  void extend(Pass& pass, const MatrixView& x, const MutableMatrixView& y,
              std::span<const SequencePart> parts) override {
    const MutableMatrixView projected =
        scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, in_.out_features());
    const MutableMatrixView scanned = scratch_.get(Scratch::gradient_middle, x.dtype, x.rows, shape_.inner());
    in_.forward(pass, normalize(pass, x), projected);
    std::int64_t first = 0;
    for (const SequencePart& part : parts) {
      step(rows(as_const(projected), first, part.tokens), rows(scanned, first, part.tokens),
           dynamic_cast<Mamba2State&>(*part.state));
      first += part.tokens;
    }
    finish(pass, x, as_const(scanned), as_const(projected), y);
  }

  std::unique_ptr<BlockState> make_state(std::int64_t /*capacity*/) const override {
    auto state = std::make_unique<Mamba2State>();
    const auto zeros = [&](std::int64_t rows, std::int64_t cols) {
      Tensor tensor = backend_.make_tensor(DType::f32, rows, cols);
      backend_.set_to_zero(tensor.bytes());
      return tensor;
    };
    state->conv = zeros(kernel_ - 1, shape_.conv_channels());
    state->ssm = zeros(shape_.heads, shape_.head_dim * shape_.state);
    return state;
  }
  std::int64_t state_bytes(std::int64_t /*capacity*/) const override {
    return ((kernel_ - 1) * shape_.conv_channels() + shape_.inner() * shape_.state) *
           static_cast<std::int64_t>(sizeof(float));
  }

  std::vector<Linear*> linears() override { return {&in_, &out_}; }
  std::size_t saved_bytes() const override {
    return projected_.bytes() + convolved_.bytes() + scanned_.bytes() + chunk_states_.bytes() +
           in_.saved_bytes() + out_.saved_bytes();
  }

 private:
  // The parts of the input projection …
  template <typename View>
  View gate(const View& projected) const {
    return columns(projected, 0, shape_.inner());
  }
  template <typename View>
  View xbc(const View& projected) const {
    return columns(projected, shape_.inner(), shape_.conv_channels());
  }
  template <typename View>
  View dt(const View& projected) const {
    return columns(projected, shape_.inner() + shape_.conv_channels(), shape_.heads);
  }
  // … and of the convolution's output.
  template <typename View>
  View scan_x(const View& convolved) const {
    return columns(convolved, 0, shape_.inner());
  }
  template <typename View>
  View scan_b(const View& convolved) const {
    return columns(convolved, shape_.inner(), shape_.groups * shape_.state);
  }
  template <typename View>
  View scan_c(const View& convolved) const {
    return columns(convolved, shape_.inner() + shape_.groups * shape_.state, shape_.groups * shape_.state);
  }

  /// Convolution and scan of one sequence's tokens, one after the other.
  void step(const MatrixView& projected, const MutableMatrixView& scanned, Mamba2State& state) {
    Mamba2Shape one = shape_;
    one.batch = 1;
    one.sequence = 1;
    for (std::int64_t t = 0; t < projected.rows; ++t) {
      const MatrixView row = rows(projected, t, 1);
      backend_.mamba2_step(Mamba2Step{one, kernel_, xbc(row), dt(row), conv_weight_.value.f32(),
                                      conv_bias_.value.f32(), dt_bias_.value.f32(), a_log_.value.f32(),
                                      d_.value.f32(), state.conv.f32(), state.ssm.f32(),
                                      rows(scanned, t, 1)});
    }
  }

  ScanInputs scan_inputs(const Pass& pass, const MatrixView& convolved, const MatrixView& projected) const {
    return {scan_x(convolved),    scan_b(convolved),  scan_c(convolved), dt(projected),
            dt_bias_.value.f32(), a_log_.value.f32(), d_.value.f32(),    pass.document_starts};
  }

  void restore(Pass& pass, const MatrixView& x) override {
    if (keep_ == Keep::nothing)
      in_.forward(pass, normalize(pass, x), projected_.view());
    else if (in_.wants_input(pass))
      in_.restore(pass, normalize(pass, x));
    if (keep_ != Keep::all) convolve(pass, x.rows);
    if (keep_ == Keep::nothing) scan(pass, x.rows);
    if (out_.wants_input(pass))
      out_.restore(pass, gate_and_normalize(pass, as_const(scanned_.view()), as_const(projected_.view())));
  }

  void differentiate(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) override {
    const auto scratch = [&](Scratch::Slot slot, std::int64_t width) {
      return scratch_.get(slot, x.dtype, x.rows, width);
    };
    const MatrixView projected = as_const(projected_.view());
    const MutableMatrixView dgated = scratch(Scratch::gradient_middle, shape_.inner());
    const MutableMatrixView dprojected = scratch(Scratch::gradient_wide, in_.out_features());
    const MutableMatrixView dscanned = scratch(Scratch::gradient_middle_2, shape_.inner());
    out_.backward(pass, as_const(dx), &dgated);
    backend_.gated_norm(GatedNormBackward{
        as_const(scanned_.view()), gate(projected), gated_norm_weight_.value.f32(), shape_.groups,
        inverse_rms_.f32(), as_const(dgated), dscanned, gate(dprojected), gated_norm_weight_.gradient.f32()});
    const MutableMatrixView dconvolved = scratch(Scratch::gradient_middle, shape_.conv_channels());
    backend_.scan(ScanBackward{shape_, scan_inputs(pass, as_const(convolved_.view()), projected),
                               chunk_states_.f32(), as_const(dscanned), scan_x(dconvolved),
                               scan_b(dconvolved), scan_c(dconvolved), dt(dprojected),
                               dt_bias_.gradient.f32(), a_log_.gradient.f32(), d_.gradient.f32()});
    backend_.causal_conv(
        CausalConvBackward{shape_.batch, shape_.sequence, kernel_, xbc(projected), conv_weight_.value.f32(),
                           conv_bias_.value.f32(), as_const(dconvolved), xbc(dprojected),
                           conv_weight_.gradient.f32(), conv_bias_.gradient.f32(), pass.document_starts});
    const MutableMatrixView normed = scratch(Scratch::gradient_narrow, x.cols);
    in_.backward(pass, as_const(dprojected), &normed);
    norm_.backward(x, as_const(normed), dx);
  }

  MatrixView normalize(const Pass& pass, const MatrixView& x) {
    const MutableMatrixView normed = in_.input(pass, x.rows);
    norm_.forward(x, normed);
    return as_const(normed);
  }

  /// The first `tokens` tokens: evaluation may have fewer sequences.
  void convolve(const Pass& pass, std::int64_t tokens) {
    backend_.causal_conv(CausalConvForward{
        tokens / shape_.sequence, shape_.sequence, kernel_, xbc(as_const(projected_.view(tokens))),
        conv_weight_.value.f32(), conv_bias_.value.f32(), convolved_.view(tokens), pass.document_starts});
  }

  void scan(const Pass& pass, std::int64_t tokens) {
    Mamba2Shape shape = shape_;
    shape.batch = tokens / shape.sequence;
    backend_.scan(ScanForward{
        shape, scan_inputs(pass, as_const(convolved_.view(tokens)), as_const(projected_.view(tokens))),
        scanned_.view(tokens), chunk_states_.f32()});
  }

  /// The input of `out_`.
  MatrixView gate_and_normalize(const Pass& pass, const MatrixView& scanned, const MatrixView& projected) {
    if (inverse_rms_.rows() < scanned.rows)
      inverse_rms_ = backend_.make_tensor(DType::f32, scanned.rows, shape_.groups);
    const MutableMatrixView gated = out_.input(pass, scanned.rows);
    backend_.gated_norm(GatedNormForward{scanned, gate(projected), gated_norm_weight_.value.f32(),
                                         shape_.groups, epsilon_, gated, inverse_rms_.f32()});
    return as_const(gated);
  }

  void finish(Pass& pass, const MatrixView& x, const MatrixView& scanned, const MatrixView& projected,
              const MutableMatrixView& y) {
    const MatrixView gated = gate_and_normalize(pass, scanned, projected);
    const MutableMatrixView out = scratch_.get(Scratch::mixed, x.dtype, x.rows, x.cols);
    out_.forward(pass, gated, out);
    backend_.add({x, as_const(out), y});
  }

  Backend& backend_;
  Scratch& scratch_;
  Mamba2Shape shape_;
  std::int64_t kernel_;
  float epsilon_;
  DType storage_;
  NormLayer norm_;
  Linear in_;
  Parameter& conv_weight_;        //!< [channels, kernel]
  Parameter& conv_bias_;          //!< [channels]
  Parameter& a_log_;              //!< [heads]
  Parameter& d_;                  //!< [heads]
  Parameter& dt_bias_;            //!< [heads]
  Parameter& gated_norm_weight_;  //!< [inner]
  Linear out_;
  Keep keep_;
  Saved projected_;     //!< [tokens, z | x B C | dt]
  Saved convolved_;     //!< [tokens, x | B | C]
  Saved scanned_;       //!< [tokens, inner]
  Saved chunk_states_;  //!< [batch * chunks, heads * head_dim * state]
  Tensor inverse_rms_;  //!< [tokens, groups]
};

}  // namespace

std::unique_ptr<Block> make_mamba2_block(const BlockContext& context) {
  return std::make_unique<Mamba2Block>(context);
}

}  // namespace tetrad
