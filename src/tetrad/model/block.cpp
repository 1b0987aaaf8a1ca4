// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/block.h"

namespace tetrad {

Linear BlockContext::make_linear(Place place, const std::string& name) const {
  return Linear(backend, scratch, parameter(name + ".weight"), prefix() + name, index, linear_count++,
                storage, place, keep);
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

NormLayer::NormLayer(Backend& backend, Parameter& weight, float epsilon, std::int64_t tokens)
    : backend_(backend),
      weight_(weight),
      epsilon_(epsilon),
      inverse_rms_(backend.make_tensor(DType::f32, 1, tokens)) {}

void NormLayer::forward(const MatrixView& x, const MutableMatrixView& y) {
  if (inverse_rms_.size() < x.rows) inverse_rms_ = backend_.make_tensor(DType::f32, 1, x.rows);
  backend_.rms_norm(RmsNormForward{x, weight_.value.f32(), epsilon_, y, inverse_rms_.f32()});
}

void NormLayer::backward(const MatrixView& x, const MatrixView& dy, const MutableMatrixView& dx) {
  backend_.rms_norm(
      RmsNormBackward{x, weight_.value.f32(), inverse_rms_.f32(), dy, dx, weight_.gradient.f32()});
}

}  // namespace tetrad
