// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/block.h"

namespace tetrad {

Linear BlockContext::make_linear(Place place, const std::string& name) const {
  return Linear(backend, scratch, parameter(name + ".weight"), prefix() + name, index, linear_count++,
                storage, place, keep, levers.weights_as_codes ? Form::packed : Form::operand,
                levers.reads_only);
}

Saved BlockContext::make_saved(Scratch::Slot slot, std::int64_t cols) const {
  return Saved(backend, scratch, slot, keep != Keep::nothing, storage, tokens(), cols);
}

void Block::backward(Pass& pass, const MatrixView& x, const MutableMatrixView& dx) {
  pass.again = true;
  restore(pass, x);
  pass.again = false;
  differentiate(pass, x, dx);
}

NormLayer::NormLayer(Backend& backend, Parameter& weight, float epsilon, std::int64_t tokens,
                     std::int64_t heads)
    : backend_(backend),
      weight_(weight),
      epsilon_(epsilon),
      heads_(heads),
      inverse_rms_(backend.make_tensor(DType::f32, 1, tokens * heads)) {}

void NormLayer::forward(const MatrixView& x, const MutableMatrixView& y) {
  const std::int64_t count = x.rows * heads_;
  if (inverse_rms_.size() < count) inverse_rms_ = backend_.make_tensor(DType::f32, 1, count);
  backend_.rms_norm(RmsNormForward{x, weight_.value.f32(), epsilon_, y, inverse_rms_.f32(), heads_});
}

void NormLayer::backward(const MatrixView& x, const MatrixView& dy, const MutableMatrixView& dx,
                         Accumulate accumulate) {
  backend_.rms_norm(RmsNormBackward{x, weight_.value.f32(), inverse_rms_.f32(), dy, dx,
                                    weight_.gradient.f32(), heads_, accumulate});
}

}  // namespace tetrad
