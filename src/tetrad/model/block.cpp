// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/block.h"

#include <numeric>
#include <utility>

namespace tetrad {

Parameter& BlockContext::add_parameter(const std::string& name, std::vector<std::int64_t> shape,
                                       bool decay) const {
  const std::int64_t cols = std::accumulate(shape.begin() + (shape.size() > 1 ? 1 : 0), shape.end(),
                                            std::int64_t{1}, std::multiplies{});
  const std::int64_t rows = shape.size() > 1 ? shape[0] : 1;
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->shape = std::move(shape);
  parameter->value = backend.make_tensor(DType::f32, rows, cols);
  parameter->gradient = backend.make_tensor(DType::f32, rows, cols);
  parameter->decay = decay;
  backend.set_to_zero(parameter->gradient.bytes());
  parameters.push_back(std::move(parameter));
  return *parameters.back();
}

Linear BlockContext::make_linear(Place place, const std::string& name, std::int64_t out,
                                 std::int64_t in) const {
  Parameter& weight = add_parameter(prefix() + name + ".weight", {out, in}, true);
  return Linear(backend, scratch, weight, prefix() + name, index, linear_count++, storage, place, keep);
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
