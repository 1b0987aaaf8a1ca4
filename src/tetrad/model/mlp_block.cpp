// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/block.h"

namespace tetrad {
namespace {

/// y = x + down(activation(up(norm(x)))). For SwiGLU, `up` gives [gate | up] side by side.
class MlpBlock final : public Block {
 public:
  explicit MlpBlock(const BlockContext& context)
      : backend_(context.backend),
        scratch_(context.scratch),
        activation_(context.config.activation),
        norm_(context.backend, context.parameter("norm.weight"), context.config.norm_epsilon,
              context.tokens()),
        up_(context.make_linear(Place::first, "up")),
        down_(context.make_linear(Place::second, "down")),
        keep_(context.keep),
        amax_values_(context.backend.make_tensor(DType::f32, 1, 2)),
        amax_{amax_values_.f32()},
        wide_(context.make_saved(Scratch::wide, up_.out_features())) {}

  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) override {
    run(pass, x, y, wide_.view(x.rows));
  }

  void extend(Pass& pass, const MatrixView& x, const MutableMatrixView& y,
              std::span<const SequencePart> /*parts*/) override {
    run(pass, x, y, scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, up_.out_features()));
  }

  std::unique_ptr<BlockState> make_state(std::int64_t /*capacity*/) const override {
    return std::make_unique<BlockState>();
  }
  std::int64_t state_bytes(std::int64_t /*capacity*/) const override { return 0; }
  std::vector<Linear*> linears() override { return {&up_, &down_}; }
  std::size_t saved_bytes() const override { return wide_.bytes() + up_.saved_bytes() + down_.saved_bytes(); }

 private:
  void restore(Pass& pass, const MatrixView& x) override {
    if (keep_ == Keep::nothing)
      up_.forward(pass, normalize(pass, x), wide_.view());
    else if (up_.wants_input(pass))
      up_.restore(pass, normalize(pass, x));
    if (down_.wants_input(pass)) down_.restore(pass, activate(pass, as_const(wide_.view())), &amax_);
  }

  void differentiate(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) override {
    const MutableMatrixView middle =
        scratch_.get(Scratch::gradient_middle, x.dtype, x.rows, down_.in_features());
    const MutableMatrixView wide = wide_.view();  // its gradient takes its place
    const MutableMatrixView normed = scratch_.get(Scratch::gradient_narrow, x.dtype, x.rows, x.cols);
    down_.backward(pass, as_const(dx), &middle);
    backend_.activation(ActivationBackward{activation_, as_const(wide), as_const(middle), wide,
                                           report_if(up_.precision(pass).uses_amax_of_dy())});
    up_.backward(pass, as_const(wide), &normed, &amax_);
    norm_.backward(x, as_const(normed), dx);
  }

  MatrixView normalize(const Pass& pass, const MatrixView& x) {
    const MutableMatrixView normed = up_.input(pass, x.rows);
    norm_.forward(x, normed);
    return as_const(normed);
  }

  MatrixView activate(const Pass& pass, const MatrixView& wide) {
    const MutableMatrixView middle = down_.input(pass, wide.rows);
    AmaxReport* report = report_if(down_.precision(pass).uses_amax_of_x(pass.training));
    backend_.activation(ActivationForward{activation_, wide, middle, report});
    return as_const(middle);
  }

  /// Where the next activation reports the amax of its output.
  AmaxReport* report_if(bool wanted) {
    amax_.known = false;
    return wanted ? &amax_ : nullptr;
  }

  void run(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const MutableMatrixView& wide) {
    up_.forward(pass, normalize(pass, x), wide);
    const MatrixView middle = activate(pass, as_const(wide));
    const MutableMatrixView out = scratch_.get(Scratch::mixed, x.dtype, x.rows, x.cols);
    down_.forward(pass, middle, out, &amax_);
    backend_.add({x, as_const(out), y});
  }

  Backend& backend_;
  Scratch& scratch_;
  Activation activation_;
  NormLayer norm_;
  Linear up_;
  Linear down_;
  Keep keep_;
  Tensor amax_values_;
  AmaxReport amax_;  //!< amax of what the last activation wrote
  Saved wide_;       //!< [tokens, ffn or 2 ffn], before the activation
};

}  // namespace

std::unique_ptr<Block> make_mlp_block(const BlockContext& context) {
  return std::make_unique<MlpBlock>(context);
}

}  // namespace tetrad
