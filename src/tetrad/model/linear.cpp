// SPDX-License-Identifier: Apache-2.0
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

/// Whether the whole tensor's amax must be known before the first element is quantized.
bool needs_amax(const std::optional<QuantSpec>& spec) { return spec && spec->format == Format::nvfp4; }

}  // namespace

Linear::Linear(Backend& backend, Scratch& scratch, Parameter& weight, std::string name, std::int64_t block,
               std::uint32_t id, DType storage, Place place, Keep keep)
    : backend_(backend),
      scratch_(scratch),
      weight_(weight),
      name_(std::move(name)),
      block_(block),
      id_(id),
      storage_(storage),
      place_(place),
      keep_(keep) {}

LinearPrecision Linear::precision(const Pass& pass) const {
  LinearPrecision precision = pass.recipe->at(layer_id(), pass.progress);
  if (precision.per_step_signs)
    for (auto& spec : precision.operands)
      if (spec) spec->signs = step_signs(pass);
  return precision;
}

MutableMatrixView Linear::input(const Pass& pass, std::int64_t tokens) {
  const bool keeps = keep_ == Keep::all && !precision(pass)[Operand::wgrad_x];
  if (pass.training && !keeps) input_ = {};  // from before the recipe's schedule changed
  if (pass.training && keeps && input_.rows() != tokens)
    input_ = backend_.make_tensor(storage_, tokens, in_features());
  if (keeps && tokens <= input_.rows()) return rows(input_.view(), 0, tokens);
  return scratch_.get(place_ == Place::first ? Scratch::first_input : Scratch::second_input, storage_, tokens,
                      in_features());
}

QuantizeOptions Linear::options(const Pass& pass, const Wanted& wanted) const {
  QuantizeOptions options;
  options.random = pass.random(id_ * kOperands + static_cast<std::uint32_t>(wanted.operand));
  options.order = backend_.preferred_order(**wanted.spec);
  options.form = wanted.form;
  options.input = wanted.amax;
  options.telemetry = Telemetry::none;
  if (pass.telemetry && !pass.again)
    options.telemetry = pass.every_element ? Telemetry::full : Telemetry::sampled;
  return options;
}

void Linear::take_note(Pass& pass, Operand operand, const QuantStats& stats) const {
  if (stats.non_finite > 0 && !pass.non_finite) pass.non_finite = name_ + " " + std::string(name_of(operand));
  if (pass.telemetry && !pass.again) pass.stats.push_back({name_, operand, stats});
}

void Linear::quantize(Pass& pass, const MatrixView& x, const Wanted& wanted) {
  if (!*wanted.spec) return;
  const QuantizeOptions options = this->options(pass, wanted);
  take_note(pass, wanted.operand, backend_.quantize(x, **wanted.spec, options, wanted.out));
}

void Linear::quantize(Pass& pass, const MatrixView& x, const Wanted& first, const Wanted& second) {
  if (!*first.spec || !*second.spec) {
    quantize(pass, x, first);
    quantize(pass, x, second);
    return;
  }
  const auto stats = backend_.quantize(x, {**first.spec, options(pass, first), first.out},
                                       {**second.spec, options(pass, second), second.out});
  take_note(pass, first.operand, stats[0]);
  take_note(pass, second.operand, stats[1]);
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
      form.dense = {};
      const std::uint32_t microbatch = std::exchange(pass.microbatch, 0);  // one form for all microbatches
      quantize(pass, weight_.value.const_view(), {&spec, operand, Form::operand, form.quantized});
      pass.microbatch = microbatch;
    } else {
      form.quantized = {};
      if (form.dense.size() == 0)
        form.dense = backend_.make_tensor(storage_, weight_.value.rows(), weight_.value.cols());
      backend_.cast({weight_.value.const_view(), form.dense.view()});
    }
  }
  return spec ? GemmOperand(form.quantized) : GemmOperand(form.dense.const_view());
}

/// W^T [in, out]: fprop's weight the other way round where that is the same thing.
GemmOperand Linear::dgrad_weight(Pass& pass, const LinearPrecision& precision) {
  const bool is_dense = !precision[Operand::dgrad_w];
  if (precision.weight_codes_shared() || (is_dense && !precision[Operand::fprop_w])) {
    dgrad_weight_ = {};
    return weight_operand(pass, precision, Operand::fprop_w, fprop_weight_).transposed();
  }
  const GemmOperand own = weight_operand(pass, precision, Operand::dgrad_w, dgrad_weight_);
  return is_dense ? own.transposed() : own;
}

void Linear::forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const AmaxReport* amax) {
  const LinearPrecision precision = this->precision(pass);
  const std::optional<QuantSpec> nothing;
  QuantizedTensor& quantized = scratch_.operand(0);
  // Codes that would not be kept are made when they are needed, unless statistics are wanted now.
  const bool codes = pass.training && (keep_ != Keep::nothing || pass.again || pass.telemetry);
  quantize(pass, x, {&precision[Operand::fprop_x], Operand::fprop_x, Form::operand, quantized, amax},
           {codes ? &precision[Operand::wgrad_x] : &nothing, Operand::wgrad_x, Form::packed, packed_input(),
            amax});
  if (pass.training && !precision[Operand::wgrad_x]) {
    saved_x_ = x;
    packed_x_ = {};
  }
  const GemmOperand weight = weight_operand(pass, precision, Operand::fprop_w, fprop_weight_);
  backend_.gemm(precision[Operand::fprop_x] ? GemmOperand(quantized) : GemmOperand(x), weight, y);
}

bool Linear::wants_input(const Pass& pass) const {
  return keep_ == Keep::nothing || (keep_ == Keep::products && !precision(pass)[Operand::wgrad_x]);
}

void Linear::restore(Pass& pass, const MatrixView& x, const AmaxReport* amax) {
  const LinearPrecision precision = this->precision(pass);
  quantize(pass, x, {&precision[Operand::wgrad_x], Operand::wgrad_x, Form::packed, packed_input(), amax});
  saved_x_ = x;
}

void Linear::backward(Pass& pass, const MatrixView& dy, const MutableMatrixView* dx, const AmaxReport* amax) {
  const LinearPrecision precision = this->precision(pass);
  const std::optional<QuantSpec> nothing;
  QuantizedTensor& for_dgrad = scratch_.operand(0);
  QuantizedTensor& for_wgrad = scratch_.operand(1);
  quantize(pass, dy,
           {dx != nullptr ? &precision[Operand::dgrad_dy] : &nothing, Operand::dgrad_dy, Form::operand,
            for_dgrad, amax},
           {&precision[Operand::wgrad_dy], Operand::wgrad_dy, Form::operand, for_wgrad, amax});
  if (dx != nullptr)
    backend_.gemm(precision[Operand::dgrad_dy] ? GemmOperand(for_dgrad) : GemmOperand(dy),
                  dgrad_weight(pass, precision), *dx);
  const GemmOperand x =
      precision[Operand::wgrad_x] ? GemmOperand(packed_input()) : GemmOperand(saved_x_).transposed();
  backend_.gemm(precision[Operand::wgrad_dy] ? GemmOperand(for_wgrad) : GemmOperand(dy).transposed(), x,
                weight_.gradient.view(), Accumulate::yes);
}

bool Linear::wants_amax_of_x(const Pass& pass) const {
  const LinearPrecision precision = this->precision(pass);
  return needs_amax(precision[Operand::fprop_x]) ||
         (pass.training && needs_amax(precision[Operand::wgrad_x]));
}
bool Linear::wants_amax_of_dy(const Pass& pass) const {
  const LinearPrecision precision = this->precision(pass);
  return needs_amax(precision[Operand::dgrad_dy]) || needs_amax(precision[Operand::wgrad_dy]);
}

bool Linear::rows_are_independent(const Pass& pass) const {
  const LinearPrecision now = precision(pass);
  const std::optional<QuantSpec>& spec = now[Operand::fprop_x];
  return !spec || (spec->format != Format::nvfp4 && spec->block.rows == 1 && spec->axis == 1 &&
                   spec->rounding == Rounding::nearest);
}

std::size_t Linear::saved_bytes() const {
  return input_.bytes().size() + packed_x_.codes.size() + packed_x_.scales.size();
}

}  // namespace tetrad
