// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/metrics_page.h"

#include <algorithm>

#include "tetrad/io/exposition.h"

namespace tetrad {
namespace {

void add_step(Exposition& out, const StepMetrics& m) {
  out.gauge("step", "Steps made.", m.step);
  out.gauge("loss", "Cross-entropy of the last step in nats per token.", m.loss);
  out.gauge("grad_norm", "Global norm of the last step's gradient, before clipping.", m.grad_norm);
  out.gauge("learning_rate", "Learning rate of the last step.", m.lr);
  out.gauge("tokens_per_second", "Speed of the last step.", m.tokens_per_s);
  out.gauge("tflops", "Floating-point operations of the model in the last step, 10^12 per second.", m.tflops);
  out.gauge("step_seconds", "Time of the last step.", m.seconds);
  out.gauge("memory_bytes", "Most memory so far: of the device, or of the process.", m.memory_bytes);
}

}  // namespace

void MetricsPage::add(const StepMetrics& metrics) {
  const std::lock_guard lock(mutex_);
  // A run that went back makes the same steps again, and trains on as many tokens again.
  const std::int64_t tokens_per_step = metrics.tokens / metrics.step;
  tokens_ = last_ ? tokens_ + tokens_per_step : metrics.tokens;
  skipped_ += metrics.skipped ? 1 : 0;
  joules_ += metrics.joules.value_or(0);
  last_ = metrics;
}

void MetricsPage::add(const EvalMetrics& metrics) {
  const std::lock_guard lock(mutex_);
  evaluations_.insert_or_assign(metrics.source, metrics);
}

void MetricsPage::add(const HealthEvent& event) {
  const std::lock_guard lock(mutex_);
  ++events_[event.action];
}

void MetricsPage::add_checkpoint(std::int64_t step, double seconds, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  checkpoint_ = Checkpoint{step, seconds, bytes};
}

std::string MetricsPage::text() const {
  const std::lock_guard lock(mutex_);
  Exposition out("tetrad_train_");
  out.family("info", "gauge", "What is trained, and the phase of the data and the precisions it is in.");
  Exposition::Labels labels = {
      {"model", run_.model}, {"recipe", run_.recipe}, {"backend", run_.backend}, {"build", run_.build}};
  const std::string phase = last_ ? std::to_string(last_->phase) : "";
  if (last_)
    labels.insert(labels.end(),
                  {{"phase", phase}, {"forward", last_->forward}, {"backward", last_->backward}});
  out.sample(std::int64_t{1}, labels);
  out.gauge("planned_steps", "Steps that the run is to have.", run_.steps);
  if (last_) {
    add_step(out, *last_);
    out.counter("tokens_total", "Tokens trained on, with those before the run was resumed.", tokens_);
    if (last_->device_busy)
      out.gauge("device_busy", "Share of the last second or less in which the device worked.",
                *last_->device_busy);
    if (last_->joules) out.counter("joules_total", "Energy of the steps since the program began.", joules_);
  }
  out.counter("steps_skipped_total", "Steps that were not applied, since the program began.", skipped_);
  if (!events_.empty()) out.family("health_events_total", "counter", "Faults, by what was done about them.");
  for (const auto& [action, count] : events_) out.sample(count, {{"action", action}});
  if (!evaluations_.empty()) out.family("eval_loss", "gauge", "Held-out cross-entropy in nats per token.");
  for (const auto& [source, m] : evaluations_) out.sample(m.loss, {{"source", source}});
  if (std::ranges::any_of(evaluations_, [](const auto& one) { return one.second.bf16_loss.has_value(); }))
    out.family("eval_bf16_loss", "gauge", "The same with the forward pass in BF16, where it is quantized.");
  for (const auto& [source, m] : evaluations_)
    if (m.bf16_loss) out.sample(*m.bf16_loss, {{"source", source}});
  if (checkpoint_) {
    out.gauge("checkpoint_step", "Step of the newest checkpoint.", checkpoint_->step);
    out.gauge("checkpoint_bytes", "Its size.", static_cast<std::int64_t>(checkpoint_->bytes));
    out.gauge("checkpoint_seconds", "Time it took to write.", checkpoint_->seconds);
  }
  return out.take();
}

}  // namespace tetrad
