#include "tetrad/model/linear.h"

#include <utility>

namespace tetrad {
namespace {

/// Signs of the transform for one step, when they are drawn anew for each: the same for all microbatches,
/// which share the weight's codes.
std::uint32_t step_signs(const Pass& pass) {
  constexpr std::uint32_t kSignStream = 0xFFFFFFFFu;  // no layer has this id
  const RandomStream stream{pass.seed, pass.step, 0, kSignStream};
  return stream.group(0)[0] & 0xFFFFu;
}

bool same(const QuantSpec& a, const QuantSpec& b) {
  return a.format == b.format && a.block == b.block && a.axis == b.axis && a.rounding == b.rounding &&
         a.hadamard == b.hadamard && a.signs == b.signs && a.adaptive == b.adaptive;
}

}  // namespace

Linear::Linear(Backend& backend, Scratch& scratch, Parameter& weight, std::string name, std::int64_t block,
               std::uint32_t id, DType storage)
    : backend_(backend),
      scratch_(scratch),
      weight_(weight),
      name_(std::move(name)),
      block_(block),
      id_(id),
      storage_(storage) {}

LinearPrecision Linear::precision(const Pass& pass) const {
  LinearPrecision precision = pass.recipe->at(layer_id(), pass.progress);
  if (precision.per_step_signs)
    for (auto& spec : precision.operands)
      if (spec) spec->signs = step_signs(pass);
  return precision;
}

MutableMatrixView Linear::input(const Pass& pass, std::int64_t tokens) {
  if (!pass.training || precision(pass)[Operand::wgrad_x])
    return scratch_.get(Scratch::linear_input, storage_, tokens, in_features());
  if (input_.rows() != tokens) input_ = backend_.make_tensor(storage_, tokens, in_features());
  return input_.view();
}

void Linear::quantize(Pass& pass, const MatrixView& x, const QuantSpec& spec, Operand operand, Form form,
                      QuantizedTensor& out) {
  QuantizeOptions options;
  options.random = pass.random(id_ * kOperands + static_cast<std::uint32_t>(operand));
  // Our product reads codes in either order, so nothing is turned that lies the other way round.
  options.order = spec.axis == 0 ? CodeOrder::col_major : CodeOrder::row_major;
  options.form = form;
  options.telemetry = pass.telemetry ? Telemetry::sampled : Telemetry::none;
  QuantStats stats = backend_.quantize(x, spec, options, out);
  if (stats.non_finite > 0 && !pass.non_finite) pass.non_finite = name_ + " " + std::string(name_of(operand));
  if (pass.telemetry) pass.stats.push_back({name_, operand, stats});
}

GemmOperand Linear::weight_operand(Pass& pass, const LinearPrecision& precision, Operand operand,
                                   WeightForm& form) {
  const std::optional<QuantSpec>& spec = precision[operand];
  if (!spec && storage_ == DType::f32) return weight_.value.const_view();
  const bool depends_on_step = spec && spec->rounding != Rounding::nearest;
  const bool fresh = form.version == weight_.version && form.spec.has_value() == spec.has_value() &&
                     (!spec || same(*spec, *form.spec)) && (!depends_on_step || form.step == pass.step);
  if (!fresh) {
    form.version = weight_.version;
    form.step = pass.step;
    form.spec = spec;
    if (spec) {
      const std::uint32_t microbatch = std::exchange(pass.microbatch, 0);  // one form for all microbatches
      quantize(pass, weight_.value.const_view(), *spec, operand, Form::operand, form.quantized);
      pass.microbatch = microbatch;
    } else {
      if (form.dense.size() == 0)
        form.dense = backend_.make_tensor(storage_, weight_.value.rows(), weight_.value.cols());
      backend_.cast({weight_.value.const_view(), form.dense.view()});
    }
  }
  return spec ? GemmOperand(form.quantized) : GemmOperand(form.dense.const_view());
}

/// W^T [in, out]: fprop's weight the other way round where that is the same thing.
GemmOperand Linear::dgrad_weight(Pass& pass, const LinearPrecision& precision) {
  if (!precision[Operand::dgrad_w] && !precision[Operand::fprop_w])
    return weight_operand(pass, precision, Operand::fprop_w, fprop_weight_).transposed();
  if (!precision[Operand::dgrad_w])
    return weight_operand(pass, precision, Operand::dgrad_w, dgrad_weight_).transposed();
  if (precision.weight_codes_shared())
    return weight_operand(pass, precision, Operand::fprop_w, fprop_weight_).transposed();
  return weight_operand(pass, precision, Operand::dgrad_w, dgrad_weight_);
}

void Linear::forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y) {
  const LinearPrecision precision = this->precision(pass);
  if (pass.training) {
    if (const auto& spec = precision[Operand::wgrad_x])
      quantize(pass, x, *spec, Operand::wgrad_x, Form::packed, packed_x_);
    else
      saved_x_ = x;
  }
  const GemmOperand weight = weight_operand(pass, precision, Operand::fprop_w, fprop_weight_);
  if (const auto& spec = precision[Operand::fprop_x]) {
    quantize(pass, x, *spec, Operand::fprop_x, Form::operand, quantized_);
    backend_.gemm(quantized_, weight, y);
  } else {
    backend_.gemm(x, weight, y);
  }
}

void Linear::backward(Pass& pass, const MatrixView& dy, const MutableMatrixView* dx) {
  const LinearPrecision precision = this->precision(pass);
  if (dx != nullptr) {
    const GemmOperand weight = dgrad_weight(pass, precision);
    if (const auto& spec = precision[Operand::dgrad_dy]) {
      quantize(pass, dy, *spec, Operand::dgrad_dy, Form::operand, quantized_);
      backend_.gemm(quantized_, weight, *dx);
    } else {
      backend_.gemm(dy, weight, *dx);
    }
  }
  const GemmOperand x =
      precision[Operand::wgrad_x] ? GemmOperand(packed_x_) : GemmOperand(saved_x_).transposed();
  if (const auto& spec = precision[Operand::wgrad_dy]) {
    quantize(pass, dy, *spec, Operand::wgrad_dy, Form::operand, quantized_);
    backend_.gemm(quantized_, x, weight_.gradient.view(), Accumulate::yes);
  } else {
    backend_.gemm(GemmOperand(dy).transposed(), x, weight_.gradient.view(), Accumulate::yes);
  }
}

std::size_t Linear::saved_bytes() const {
  return input_.bytes().size() + packed_x_.codes.size() + packed_x_.scales.size();
}

}  // namespace tetrad
