// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "tetrad/inspect/report.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

Json json_of(const Estimate& estimate) {
  return {{"mean", estimate.mean}, {"standard_error", estimate.error}};
}

/// An estimate that may be noise.
Json figure(const Estimate& estimate) {
  Json json = json_of(estimate);
  json["noise"] = estimate.is_noise();
  return json;
}

Json json_of(const Gain& gain) {
  return {{"gradient_error", figure(gain.gradient_error)}, {"loss", figure(gain.loss)}};
}

Json json_of(const std::optional<Gain>& gain) { return gain ? json_of(*gain) : Json(); }

Json json_of(const std::optional<NoiseReport>& noise) {
  return noise ? Json{{"bias_squared", figure(noise->bias)}, {"variance", figure(noise->variance)}} : Json();
}

Json json_of(const SetReport& set) {
  const auto number = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(); };
  return {{"high_precision",
           {{"first", number(set.kept.first)},
            {"last", number(set.kept.last)},
            {"match", set.kept.match},
            {"fp8", set.kept.fp8}}},
          {"gradient_error", json_of(set.gradient_error)},
          {"loss", json_of(set.loss)},
          {"cosine", json_of(set.cosine)},
          {"backward", json_of(set.backward)},
          {"bf16_flop_share", set.bf16_share},
          {"fp8_flop_share", set.fp8_share},
          {"weight_bytes", set.weight_bytes}};
}

Json json_of(const UnitReport& report) {
  return {{"name", report.unit.name},
          {"layers", report.unit.layers},
          {"now", name_of(report.now)},
          {"suggested", name_of(report.suggested)},
          {"flop_share", report.unit.share},
          {"bf16", json_of(report.bf16)},
          {"fp8", json_of(report.fp8)},
          {"lost_if_quantized", json_of(report.in_todays_set)},
          {"backward", json_of(report.backward)},
          {"bf16_bytes", report.bf16_bytes},
          {"fp8_bytes", report.fp8_bytes}};
}

Json json_of(const OperandReport& report) {
  const QuantStats& stats = report.stats.stats;
  return {{"layer", report.stats.layer},
          {"operand", name_of(report.stats.operand)},
          {"now", name_of(report.now)},
          {"sqnr_db", stats.sqnr_db()},  // null: nothing was lost
          {"underflow", stats.flushed_fraction()},
          {"saturated", stats.saturated_fraction()},
          {"zero_scale_blocks", stats.zero_scale_blocks},
          {"amax", stats.amax}};
}

template <class T>
Json list_of(const std::vector<T>& reports) {
  Json list = Json::array();
  for (const T& report : reports) list.push_back(json_of(report));
  return list;
}

std::string_view name_of(Advice verdict) {
  switch (verdict) {
    case Advice::better:
      return "better";
    case Advice::as_good:
      return "as_good_for_less";
    case Advice::none:
      return "none";
    default:
      return "keep_today";
  }
}

}  // namespace

nlohmann::json report_json(const InspectedRun& run, const Inspection& inspection,
                           const InspectOptions& options) {
  return {{"checkpoint", run.checkpoint.string()},
          {"step", run.step},
          {"steps", run.steps},
          {"forward", inspection.forward},
          {"backward", inspection.backward},
          {"microbatches", run.data.training.size()},
          {"tokens_per_microbatch", run.data.training[0].inputs.size()},
          {"draws", options.draws},
          {"loss_sequences", inspection.sequences},
          {"losses_of", run.data.heldout.empty() ? "training" : "heldout"},
          {"by", options.by_block ? "block" : "layer"},
          {"budget_percent", 100 * options.budget},
          {"reference_loss", inspection.reference_loss},
          {"operands", list_of(inspection.worst)},
          {"units", list_of(inspection.units)},
          {"sets",
           {{"nothing", json_of(inspection.nothing)},
            {"today", json_of(inspection.today)},
            {"suggested", json_of(inspection.suggested)}}},
          {"gain_over_today", json_of(inspection.gain)},
          {"verdict", name_of(inspection.verdict)},
          {"yaml", inspection.verdict == Advice::none ? Json() : Json(report_yaml(run, inspection))}};
}

}  // namespace tetrad
