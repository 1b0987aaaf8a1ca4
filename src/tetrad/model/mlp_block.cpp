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
        norm_(context.backend,
              context.add_parameter(context.prefix() + "norm.weight", {context.config.hidden}, false),
              context.config.norm_epsilon, context.tokens()),
        up_(context.make_linear("up", context.config.ffn * (activation_ == Activation::swiglu ? 2 : 1),
                                context.config.hidden)),
        down_(context.make_linear("down", context.config.hidden, context.config.ffn)),
        wide_(context.backend.make_tensor(context.storage, context.tokens(), up_.out_features())) {}

  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) override {
    run(pass, x, y, pass.training ? wide_.view() : wide_scratch(x));
  }

  void extend(Pass& pass, const MatrixView& x, const MutableMatrixView& y, BlockState& /*state*/) override {
    run(pass, x, y, wide_scratch(x));
  }

  void backward(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) override {
    const MutableMatrixView middle =
        scratch_.get(Scratch::gradient_middle, x.dtype, x.rows, down_.in_features());
    const MutableMatrixView wide = scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, up_.out_features());
    const MutableMatrixView normed = scratch_.get(Scratch::gradient_narrow, x.dtype, x.rows, x.cols);
    down_.backward(pass, as_const(dx), &middle);
    backend_.activation(ActivationBackward{activation_, wide_.const_view(), as_const(middle), wide});
    up_.backward(pass, as_const(wide), &normed);
    norm_.backward(x, as_const(normed), dx);
  }

  std::unique_ptr<BlockState> make_state(std::int64_t /*capacity*/) const override {
    return std::make_unique<BlockState>();
  }
  std::vector<Linear*> linears() override { return {&up_, &down_}; }
  std::size_t saved_bytes() const override {
    return wide_.bytes().size() + up_.saved_bytes() + down_.saved_bytes();
  }

 private:
  MutableMatrixView wide_scratch(const MatrixView& x) {
    return scratch_.get(Scratch::gradient_wide, x.dtype, x.rows, up_.out_features());
  }

  void run(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const MutableMatrixView& wide) {
    const MutableMatrixView normed = up_.input(pass, x.rows);
    norm_.forward(x, normed);
    up_.forward(pass, as_const(normed), wide);
    const MutableMatrixView middle = down_.input(pass, x.rows);
    backend_.activation(ActivationForward{activation_, as_const(wide), middle});
    const MutableMatrixView out = scratch_.get(Scratch::linear_output, x.dtype, x.rows, x.cols);
    down_.forward(pass, as_const(middle), out);
    backend_.add({x, as_const(out), y});
  }

  Backend& backend_;
  Scratch& scratch_;
  Activation activation_;
  NormLayer norm_;
  Linear up_;
  Linear down_;
  Tensor wide_;  //!< [tokens, ffn or 2 ffn], before the activation
};

}  // namespace

std::unique_ptr<Block> make_mlp_block(const BlockContext& context) {
  return std::make_unique<MlpBlock>(context);
}

}  // namespace tetrad
