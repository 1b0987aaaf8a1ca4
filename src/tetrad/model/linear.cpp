// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/linear.h"

#include <utility>

#include "tetrad/model/weight_shards.h"

namespace tetrad {

Linear::Linear(Backend& backend, Scratch& scratch, Parameter& weight, std::string name, std::int64_t block,
               std::uint32_t id, DType storage, Place place, Keep keep, Form weight_form, bool packs_weight)
    : backend_(backend),
      scratch_(scratch),
      weight_(weight),
      name_(std::move(name)),
      block_(block),
      id_(id),
      storage_(storage),
      place_(place),
      keep_(keep),
      weight_form_(weight_form),
      packs_weight_(packs_weight) {}

MutableMatrixView Linear::input(const Pass& pass, std::int64_t tokens) {
  const bool keeps = keep_ == Keep::all && !precision(pass).saved_spec();
  if (pass.training && !keeps) input_ = {};  // from before the recipe's schedule changed
  if (pass.training && keeps && input_.rows() != tokens)
    input_ = backend_.make_tensor(storage_, tokens, in_features());
  if (keeps && tokens <= input_.rows()) return rows(input_.view(), 0, tokens);
  return scratch_.get(place_ == Place::first ? Scratch::first_input : Scratch::second_input, storage_, tokens,
                      in_features());
}

LinearCall Linear::make_call(const Pass& pass, const LinearPrecision& precision, LinearStats& stats) const {
  LinearCall call{backend_, precision, {pass.seed, pass.step, pass.microbatch, id_, pass.draw}};
  if (pass.telemetry && !pass.again)
    call.telemetry = pass.every_element ? Telemetry::full : Telemetry::sampled;
  call.stats = &stats;
  if (!precision.rows_are_independent()) call.stack = pass.stack;
  return call;
}

void Linear::take_note(Pass& pass, const LinearStats& stats, std::initializer_list<Operand> order) const {
  for (const Operand operand : order) {
    const std::optional<QuantStats>& reported = stats[static_cast<std::size_t>(operand)];
    if (!reported) continue;
    if (reported->non_finite > 0 && !pass.non_finite)
      pass.non_finite = name_ + " " + std::string(name_of(operand));
    if (pass.telemetry && !pass.again) pass.stats.push_back({name_, operand, *reported});
  }
}

MatrixView Linear::weight_values() {
  return weight_.shards != nullptr ? weight_.shards->masters(weight_) : weight_.value.const_view();
}

bool Linear::is_current(const LinearCall& call, Operand operand, const CachedWeight& cached) const {
  return cached.version == weight_.version && cached.spec == call.spec(operand) &&
         (!weight_depends_on_step(call.precision, operand) ||
          (cached.step == call.key.step && cached.seed == call.key.seed_of(operand)));
}

PassingForm* Linear::passing_form(Operand operand) const {
  WeightShards* const shards = weight_.shards;
  if (shards == nullptr || !shards->share_forms()) return nullptr;
  return &shards->passing_form(block_, static_cast<std::size_t>(place_), operand);
}

WeightForm& Linear::start_form(const LinearCall& call, Operand operand, CachedWeight& cached,
                               bool statistics_wanted) {
  const bool current = is_current(call, operand, cached);
  PassingForm* const passing = passing_form(operand);
  WeightForm& form = passing != nullptr ? passing->form : cached.form;
  if (current && (passing == nullptr || passing->owner == &cached)) return form;
  if (!current && passing != nullptr) cached.form.codes.rows = 0;  // the band's, of another weight
  cached.version = weight_.version;
  cached.is_packed = false;
  cached.step = call.key.step;
  cached.seed = call.key.seed_of(operand);
  cached.spec = call.spec(operand);
  if (passing != nullptr) passing->owner = &cached;
  LinearCall again = call;
  if (current) again.stats = nullptr;  // it has been noted when it was made
  if (operand == Operand::dgrad_w && call.precision.dgrad_requantizes()) {
    weight_operand(call, Operand::fprop_w, fprop_weight_, statistics_wanted);
    const PassingForm* const fprop = passing_form(Operand::fprop_w);
    const MatrixView values = linear_weight_values(again, fprop != nullptr ? fprop->form : fprop_weight_.form,
                                                   storage_, scratch_.operands());
    linear_weight(again, operand, values, storage_, form, weight_form_);
    return form;
  }
  if (weight_.shards == nullptr) {
    linear_weight(call, operand, weight_.value.const_view(), storage_, form, weight_form_);
    return form;
  }
  const WeightShards::FormCall op{again,
                                  operand,
                                  weight_,
                                  storage_,
                                  statistics_wanted && !current,
                                  passing != nullptr ? &cached.form : nullptr};
  if (passing != nullptr)
    passing->gathering = weight_.shards->start_form(op, form);
  else
    weight_.shards->make_form(op, form);
  return form;
}

GemmOperand Linear::weight_operand(const LinearCall& call, Operand operand, CachedWeight& cached,
                                   bool statistics_wanted) {
  const WeightForm& form = start_form(call, operand, cached, statistics_wanted);
  if (const PassingForm* const passing = passing_form(operand)) weight_.shards->wait(passing->gathering);
  const GemmOperand result = tetrad::weight_operand(operand, weight_.value.const_view(), form);
  if (!packs_weight_) return result;
  if (!cached.is_packed) cached.is_packed = backend_.pack(result, cached.packed);
  return cached.is_packed ? result.with(cached.packed) : result;
}

void Linear::fetch(const Pass& pass, bool backward) {
  const LinearPrecision& precision = this->precision(pass);
  const LinearCall call{backend_, precision, {pass.seed, pass.step, pass.microbatch, id_, pass.draw}};
  const auto start = [&](Operand operand, CachedWeight& cached) {
    // What is noted of a form that is made is noted in the order of layers: then it is not made before.
    if (is_current(call, operand, cached) || !pass.telemetry_in_step)
      start_form(call, operand, cached, false);
  };
  const bool computes_again = place_ == Place::first && keep_ == Keep::nothing;
  if (!backward || computes_again || precision.weight_form_shared()) start(Operand::fprop_w, fprop_weight_);
  if (backward && !precision.weight_form_shared() && !precision.dgrad_requantizes())
    start(Operand::dgrad_w, dgrad_weight_);
}

/// W^T [in, out].
GemmOperand Linear::dgrad_weight(const LinearCall& call, bool statistics_wanted) {
  if (!call.precision.weight_form_shared())
    return weight_operand(call, Operand::dgrad_w, dgrad_weight_, statistics_wanted);
  dgrad_weight_ = {};
  return weight_operand(call, Operand::fprop_w, fprop_weight_, statistics_wanted).transposed();
}

void Linear::forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const AmaxReport* amax) {
  const LinearPrecision& precision = this->precision(pass);
  LinearStats stats;
  const LinearCall call = make_call(pass, precision, stats);
  const bool is_quantized = precision.saved_spec().has_value();
  // Codes that would not be kept are made when they are needed, unless statistics are wanted now.
  const bool saves =
      pass.training && (!is_quantized || keep_ != Keep::nothing || pass.again || pass.telemetry);
  LinearForward op{x, weight_operand(call, Operand::fprop_w, fprop_weight_, pass.telemetry_in_step), y,
                   scratch_.operands()};
  if (saves) op.saved_codes = &packed_input();
  op.amax = amax;
  op.mean = &mean();
  if (precision.centres()) op.weight_values = weight_values();
  const LinearSaved saved = linear_forward(call, op);
  if (saves) saved_ = saved;
  if (saves && !is_quantized) packed_x_ = {};  // from before the recipe's schedule changed
  take_note(pass, stats, {Operand::fprop_x, Operand::wgrad_x, Operand::fprop_w});
}

bool Linear::wants_input(const Pass& pass) const {
  return keep_ == Keep::nothing || (keep_ == Keep::products && !precision(pass).saved_spec());
}

void Linear::restore(Pass& pass, const MatrixView& x, const AmaxReport* amax) {
  const LinearPrecision& precision = this->precision(pass);
  LinearStats stats;
  saved_ =
      linear_save(make_call(pass, precision, stats), {x, packed_input(), scratch_.operands(), amax, &mean()});
  take_note(pass, stats, {Operand::wgrad_x});
}

void Linear::backward(Pass& pass, const MatrixView& dy, const MutableMatrixView* dx, const AmaxReport* amax) {
  const LinearPrecision& precision = this->precision(pass);
  LinearStats stats;
  const LinearCall call = make_call(pass, precision, stats);
  LinearBackward op{dy, saved_, scratch_.operands()};
  if (dx != nullptr) {
    op.weight = dgrad_weight(call, pass.telemetry_in_step);
    op.dx = *dx;
  }
  op.dw = weight_.gradient.view();
  op.amax = amax;
  linear_backward(call, op);
  take_note(pass, stats,
            {Operand::dgrad_dy, Operand::wgrad_dy, Operand::fprop_w, Operand::dgrad_w, Operand::wgrad_x});
}

std::size_t Linear::saved_bytes() const {
  return input_.bytes().size() + packed_x_.codes.size() + packed_x_.scales.size() + mean_.size();
}

}  // namespace tetrad
