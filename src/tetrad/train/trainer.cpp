// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/eval/evaluation.h"
#include "tetrad/model/flops.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"
#include "tetrad/train/resume.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/run_ranks.h"

namespace tetrad {
namespace {

std::string with_unit(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.0f}", value);
}

}  // namespace

Trainer::Trainer(const Config& config, Dataset dataset, std::string resolved, std::string build,
                 const RunFolder& folder, Backend& backend, Communicator& ranks, RunLog& log)
    : config_(config),
      texts_{std::move(resolved), {}},
      run_folder_(folder),
      folder_(folder.path()),
      backend_(backend),
      ranks_(ranks),
      log_(log),
      steps_(step_count(config.train)),
      last_step_(steps_),
      microbatch_(config.train.microbatch > 0 ? config.train.microbatch : config.train.batch),
      recipe_(config.precision, config.model.blocks()),
      dataset_(std::move(dataset)),
      deal_(deal_groups(config, ranks.size())),
      routes_(ranks, ranks_per_node(ranks.share(host_name()), config.parallel.ranks_per_node)),
      plan_(plan_memory(config, backend, {ranks.size(), routes_.ranks_per_node()})),
      shards_(make_shards(config, backend, routes_)),
      decoder_(backend, config.model, microbatch_, config.train.sequence, storage_type(config.precision),
               plan_.levers, shards_.get()),
      optimizer_(backend, decoder_.parameters(), config.optim, plan_.host_moments,
                 config.train.rounding_seed()),
      messages_{shards_ ? ranks.messages() : nullptr, patience_between_ranks(config.run) / 2},
      gradients_(backend, routes_, decoder_.parameters(), decoder_.gradient_units(), deal_,
                 gradient_wire(config)),
      saver_(folder_, config.train, ranks, log),
      watch_(config.train.health),
      inputs_(static_cast<std::size_t>(microbatch_ * config.train.sequence)),
      targets_(inputs_.size()),
      document_starts_(dataset_.masks_documents() ? inputs_.size() : 0),
      losses_(inputs_.size()) {
  backend_.keep_choices_in(folder_);
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(dataset_.tokenizer()))
    texts_.tokenizer = to_tokenizer_json(bpe->definition());
  if (!plan_.is_plain() || config.train.recompute == "auto")
    log_.say("memory: {}", describe(plan_, config.model));
  state_.tokenizer_hash = dataset_.tokenizer_hash();
  state_.build = std::move(build);
  state_.identity = {folder.id(), settings_hash(config_), dataset_.hashes(), folder.branch()};
  for (const auto& [name, value] : decoder_.backend().bits_depend_on()) state_.bits_depend_on[name] = value;
}

void Trainer::note_changes() {
  if (state_.step == 0) return;
  const auto note = [&](const std::string& what, std::string_view before, std::string_view after) {
    if (before == after) return;
    log_.say("from step {} on: {} {}, no longer {}", state_.step + 1, what, after, before);
    metrics_->add_change(state_.step + 1, what, std::string(before), std::string(after));
  };
  const Recipe::Names before = recipe_.names_at(progress(state_.step - 1));
  const Recipe::Names now = recipe_.names_at(progress(state_.step));
  note("forward precision", before.forward, now.forward);
  note("backward precision", before.backward, now.backward);
}

Pass Trainer::make_pass(std::int64_t microbatch) const {
  Pass pass;
  pass.recipe = &recipe_;
  pass.seed = config_.train.rounding_seed();
  pass.step = static_cast<std::uint32_t>(state_.step);
  pass.microbatch = static_cast<std::uint32_t>(microbatch);
  pass.progress = progress(state_.step);
  pass.z_loss = static_cast<float>(config_.train.z_loss);
  pass.trace = trace_.get();
  pass.telemetry_in_step =
      config_.train.telemetry_every > 0 && (state_.step + 1) % config_.train.telemetry_every == 0;
  pass.telemetry = microbatch == 0 && pass.telemetry_in_step;
  return pass;
}

Ending Trainer::run(const StopSignals& signals) {
  if (!config_.run.trace.empty()) trace_ = std::make_unique<RunTrace>(backend_, routes_, config_.run.trace);
  try {
    const Ending ending = run_steps(signals);
    finish_save();
    finish_trace();
    return ending;
  } catch (const SharedError&) {
    finish_save();
    throw;
  } catch (const Error&) {
    if (ranks_.size() == 1) finish_save();
    throw;
  }
}

Ending Trainer::run_steps(const StopSignals& signals) {
  const std::int64_t first = state_.step;
  while (state_.step < last_step_) {
    if (trace_ && state_.step - first >= config_.run.trace_steps) finish_trace();
    if (on_any(ranks_, signals.received())) {
      save(true);
      if (config_.train.checkpoint.enabled)
        log_.say("stopped by a signal after step {}; go on with: tetrad train --resume {}", state_.step,
                 folder_.string());
      else
        log_.say("stopped by a signal after step {}; nothing was saved (train.checkpoint.enabled: false)",
                 state_.step);
      return Ending::stopped_by_signal;
    }
    tell_step_(state_.step + 1);
    note_changes();
    const double begin = steady_seconds();
    const nlohmann::json cursors = dataset_.state();
    StepOutcome outcome;
    try {
      outcome = compute_gradients(signals);
    } catch (const SharedError&) {  // data that can no longer be read, for example: what was trained is kept
      dataset_.restore(cursors);
      save(false);
      throw;
    }
    if (outcome.record.interrupted) {
      dataset_.restore(cursors);  // the step will be made again, whole
      continue;
    }
    if (outcome.fault && !handle_fault(outcome, cursors)) return Ending::diverged;
    if (outcome.fault && outcome.fault->action == "rollback") continue;
    if (!outcome.fault) apply(outcome);
    ++state_.step;
    report(outcome, steady_seconds() - begin);
    if (outcome.record.has_saved) finish_save();
    if (watch_.diverged()) {
      log_.say("diverged: the smoothed loss {:.3f} has been {:.2f} nats above its best {:.3f} for {} steps",
               watch_.smoothed(), watch_.smoothed() - watch_.best(), watch_.best(),
               config_.train.health.divergence_steps);
      metrics_->add(HealthEvent{state_.step, "divergence", "loss", "stop"});
      save(false);
      return Ending::diverged;
    }
    const bool last = state_.step == steps_;
    const std::int64_t eval_every = config_.train.eval.every;
    if (last || (eval_every > 0 && state_.step % eval_every == 0)) evaluate(last);
    const bool ends = state_.step == last_step_;
    if ((ends && saves_ends_) || is_scheduled(state_.step) || outcome.record.asks_to_save) save(ends);
  }
  return Ending::finished;
}

Trainer::StepOutcome Trainer::compute_gradients(const StopSignals& signals) {
  StepOutcome outcome;
  outcome.phase_before = dataset_.mixture().state().phase;
  outcome.learning_rate =
      learning_rate(config_.schedule, config_.optim.lr, state_.step, {steps_, tokens_per_step()});
  StepRecord own;
  const auto compute = [&] { own = compute_groups(signals, outcome.stats); };
  if (ranks_.size() == 1)
    together(ranks_, compute);  // what was trained is kept, whatever goes wrong
  else
    compute();  // what others wait for cannot be said together, but where microbatches begin
  save_asked_ = signals.take_checkpoint_request() || save_asked_;
  own.asks_to_save = save_asked_ || (ranks_.rank() == 0 && saver_.is_time());
  own.has_saved = saver_.is_done();
  outcome.record = share(ranks_, own);
  if (outcome.record.interrupted) return outcome;
  gradients_.finish();
  outcome.loss = outcome.record.loss_sum() / static_cast<double>(tokens_per_step());
  const AdamWOptimizer::GradientReport gradients = optimizer_.inspect();
  outcome.grad_norm = gradients.norm;
  outcome.fault = find_fault(outcome, gradients);
  return outcome;
}

StepRecord Trainer::compute_groups(const StopSignals& signals, std::vector<OperandStats>& stats) {
  StepRecord record;
  gradients_.restart();
  const std::int64_t samples = config_.train.batch / config_.train.groups;
  for (std::int64_t group = 0; group < config_.train.groups; ++group) {
    if (deal_.rank_of(group) != ranks_.rank()) {
      dataset_.mixture().skip(samples);
      continue;
    }
    record.interrupted = !compute_group(group, signals, record, stats);
    if (record.interrupted) return record;
  }
  if (failpoint("train.non_finite") != 0)
    record.losses.begin()->second = std::numeric_limits<double>::quiet_NaN();
  return record;
}

bool Trainer::compute_group(std::int64_t group, const StopSignals& signals, StepRecord& record,
                            std::vector<OperandStats>& stats) {
  const std::int64_t microbatches = config_.train.microbatches();
  const std::int64_t each = microbatches / config_.train.groups;
  const std::int64_t first = group * each;
  double told = steady_seconds();
  for (std::int64_t i = first; i < first + each; ++i) {
    // Ranks compute together: one that stops or fails before a microbatch does so with all of them.
    if (on_any(ranks_, !record.losses.empty() && signals.received())) return false;
    const TraceRange range(trace_.get(), "microbatch", i);
    const double begin = steady_seconds();
    read_microbatch();
    Pass pass = make_pass(i);
    pass.gradients = &gradients_;
    gradients_.begin_microbatch(i == first, i + 1 == first + each);
    decoder_.train(pass, inputs_, targets_, 1.0f / static_cast<float>(tokens_per_step()), losses_,
                   document_starts_);
    record.losses[i] = std::accumulate(losses_.begin(), losses_.end(), 0.0);
    if (pass.telemetry) stats = std::move(pass.stats);
    if (pass.non_finite) record.non_finite[i] = *pass.non_finite;
    const double now = steady_seconds();
    signals.expect_seconds(now - begin + saver_.seconds());
    constexpr double kLong = 10;  // seconds without a sign of life
    if (now - told > kLong && i + 1 < microbatches) {
      log_.progress(
          fmt::format("step {}/{}: microbatch {} of {}", state_.step + 1, steps_, i + 1, microbatches));
      told = now;
    }
  }
  return true;
}

void Trainer::read_microbatch() {
  together(ranks_, [&] { dataset_.next(microbatch_, inputs_, targets_, document_starts_); });
}

std::optional<HealthEvent> Trainer::find_fault(const StepOutcome& outcome,
                                               const AdamWOptimizer::GradientReport& report) const {
  const std::int64_t step = state_.step + 1;
  const HealthConfig& health = config_.train.health;
  if (const auto& inputs = outcome.record.non_finite; !inputs.empty())
    return HealthEvent{step, "non-finite quantizer input", inputs.begin()->second, health.policy};
  if (!std::isfinite(outcome.loss)) return HealthEvent{step, "non-finite loss", "loss", health.policy};
  if (!report.first_non_finite.empty())
    return HealthEvent{step, "non-finite gradient", report.first_non_finite, health.policy};
  if (watch_.is_spike(outcome.loss))
    return HealthEvent{step, fmt::format("loss spike, {:.1f} sigma", watch_.deviation(outcome.loss)), "loss",
                       health.on_spike};
  return std::nullopt;
}

bool Trainer::handle_fault(StepOutcome& outcome, const nlohmann::json& cursors_before) {
  HealthEvent& event = *outcome.fault;
  log_.say("step {}: {} in {} (loss {:.4f}, gradient norm {:.3g}): {}", event.step, event.what, event.where,
           outcome.loss, outcome.grad_norm, event.action);
  if (event.action == "log") {
    metrics_->add(event);
    outcome.fault.reset();
    return true;
  }
  if (event.action == "rollback") finish_save();  // which may be what it goes back to, and counts anew
  const std::int64_t limit = config_.train.health.max_skips;
  if (event.action == "skip" && state_.skips_in_row < limit) {
    ++state_.skips_in_row;
    metrics_->add(event);
    return true;
  }
  if (event.action == "rollback" && state_.rollbacks < limit) {
    roll_back(event);
    return true;
  }
  if (event.action != "stop") log_.say("that was too often ({} times): stopping", limit);
  event.action = "stop";
  metrics_->add(event);
  dataset_.restore(cursors_before);  // a checkpoint of the state before the bad step
  save(false);
  return false;
}

/// Back to the last checkpoint of the schedule, and past the data that the run went bad on.
void Trainer::roll_back(HealthEvent event) {
  const RunState bad = state_;
  const std::optional<FoundCheckpoint> checkpoint = newest_checkpoint(bad.scheduled_step);
  if (!checkpoint) throw Error("there is no checkpoint to go back to", ExitCode::no_checkpoint);
  load(checkpoint->path);
  state_.rollbacks = bad.rollbacks + 1;
  state_.rollback_samples = bad.rollback_samples + (bad.step + 1 - state_.step) * config_.train.batch;
  dataset_.mixture().skip(state_.rollback_samples);
  metrics_->cut_after(state_.step);
  event.what += fmt::format(" at step {}", event.step);
  event.step = state_.step;
  metrics_->add(event);
  log_.say("went back to step {}; {} sequences are left out", state_.step, state_.rollback_samples);
}

void Trainer::finish_trace() {
  const std::unique_ptr<RunTrace> trace = std::move(trace_);
  if (!trace) return;
  try {
    trace->write();
    log_.say("trace: {}", config_.run.trace);
  } catch (const Error& error) {
    log_.say("{}", error.what());
  }
}

void Trainer::apply(const StepOutcome& outcome) {
  saver_.wait_until_read();
  const TraceRange range(trace_.get(), "optimizer");
  optimizer_.step(state_.step + 1, outcome.learning_rate, outcome.grad_norm);
  watch_.add(outcome.loss);
  state_.skips_in_row = 0;
}

void Trainer::report(const StepOutcome& outcome, double seconds) {
  StepMetrics metrics;
  metrics.step = state_.step;
  metrics.tokens = state_.step * tokens_per_step();
  metrics.loss = outcome.loss;
  metrics.grad_norm = outcome.grad_norm;
  metrics.lr = outcome.learning_rate;
  metrics.tokens_per_s = static_cast<double>(tokens_per_step()) / seconds;
  metrics.tflops =
      training_flops_per_token(config_.model, config_.train.sequence) * metrics.tokens_per_s / 1e12;
  metrics.seconds = seconds;
  metrics.memory_bytes = backend_.peak_memory();
  if (const std::optional<double> energy = backend_.energy()) {
    if (energy_) metrics.joules = *energy - *energy_;
    energy_ = energy;
  }
  metrics.device_busy = backend_.busy();
  metrics.skipped = outcome.fault.has_value();
  metrics.phase = dataset_.mixture().phase();
  if (const std::int64_t phase = dataset_.mixture().state().phase; phase != outcome.phase_before) {
    log_.say("step {}: phase {} of the data begins", state_.step, phase);
    metrics_->add_change(state_.step, "phase of the data", fmt::to_string(outcome.phase_before),
                         fmt::to_string(phase));
  }
  const Recipe::Names recipes = recipe_.names_at(make_pass(0).progress);
  metrics.forward = recipes.forward;
  metrics.backward = recipes.backward;
  metrics_->add(metrics);
  if (!outcome.stats.empty()) metrics_->add(state_.step, outcome.stats);

  constexpr double kSmoothing = 0.1;
  smoothed_seconds_ =
      smoothed_seconds_ == 0 ? seconds : smoothed_seconds_ + kSmoothing * (seconds - smoothed_seconds_);
  if (state_.step % config_.train.log_every == 0 || state_.step == steps_)
    log_.progress(
        fmt::format("step {}/{}  loss {:.4f}  grad {:.3f}  lr {:.2e}  {} tokens/s  ETA {}", state_.step,
                    steps_, metrics.loss, metrics.grad_norm, metrics.lr, with_unit(metrics.tokens_per_s),
                    format_duration(smoothed_seconds_ * static_cast<double>(steps_ - state_.step))));
}

bool Trainer::evaluates_in_bf16(bool last) {
  const std::string& when = config_.train.eval.bf16;
  if (when == "never" || (when == "last" && !last)) return false;
  if (!quantizes_forward(decoder_, recipe_, progress(state_.step))) return false;
  // The weights of all linear layers in BF16 take the place of their codes: rather none than not enough.
  constexpr std::int64_t kBf16Bytes = 2;
  std::int64_t needed = 0;
  for (const Linear* linear : decoder_.linears())
    needed += kBf16Bytes * linear->in_features() * linear->out_features();
  const std::optional<std::int64_t> free = backend_.free_memory();
  if (!on_any(ranks_, free && needed >= *free)) return true;
  log_.say("step {}: not evaluated in BF16, for which memory is short (train.eval.bf16: never)", state_.step);
  return false;
}

void Trainer::evaluate(bool last) {
  const TraceRange range(trace_.get(), "evaluation");
  const bool in_bf16 = evaluates_in_bf16(last);
  const Recipe bf16(unquantized(config_.precision), config_.model.blocks());
  evaluations_.clear();
  for (const std::string& source : dataset_.source_names()) {
    const TokenSequences* heldout = dataset_.heldout(source);
    if (heldout == nullptr) continue;
    Pass pass = make_pass(0);
    pass.telemetry = pass.telemetry_in_step = false;
    const Evaluation result =
        tetrad::evaluate(ranks_, decoder_, pass, *heldout, microbatch_, config_.train.eval.sequences);
    EvalMetrics metrics{
        state_.step,       state_.step * tokens_per_step(), source, result.loss, result.bits_per_byte,
        result.excess_nats};
    if (in_bf16) {
      pass.recipe = &bf16;
      metrics.bf16_loss =
          tetrad::evaluate(ranks_, decoder_, pass, *heldout, microbatch_, config_.train.eval.sequences).loss;
    }
    metrics_->add(metrics);
    evaluations_.push_back(metrics);
    log_.say(
        "step {}: {} held out: loss {:.4f}{}{}{}", state_.step, source, metrics.loss,
        metrics.bf16_loss ? fmt::format(" ({:.4f} in BF16)", *metrics.bf16_loss) : "",
        metrics.bits_per_byte ? fmt::format(", {:.4f} bits per byte", *metrics.bits_per_byte) : "",
        metrics.excess_nats ? fmt::format(", {:+.4f} nats over the true entropy", *metrics.excess_nats) : "");
  }
}

bool Trainer::is_scheduled(std::int64_t step) const {
  const std::int64_t every = config_.train.checkpoint.every;
  const std::int64_t first = state_.identity.branch ? state_.identity.branch->step : 0;
  return step == first || (every > 0 && step % every == 0);
}

void Trainer::save(bool must_succeed) {
  if (!config_.train.checkpoint.enabled) return;
  finish_save();
  save_asked_ = false;
  if (saver_.has(state_.step)) return;
  const bool is_scheduled_here = is_scheduled(state_.step);
  if (is_scheduled_here) {  // also if it cannot be written: a full disk must not be seen in what comes later
    state_.scheduled_step = state_.step;
    if (const std::optional<double> loss = heldout_loss();
        loss && (!state_.best || *loss < state_.best->loss))
      state_.best = {state_.step, *loss};
  }
  RunState state = state_;
  state.data = dataset_.state();
  state.loss_watch = watch_.state();
  if (is_scheduled_here) state.rollbacks = state.rollback_samples = 0;
  const auto stays = [wanted = config_.train.checkpoint, scheduled = state.scheduled_step,
                      best = state.best](std::int64_t step) {
    return step == scheduled || (wanted.keep_best && best && step == best->step) ||
           wanted.stays_for_good(step);
  };
  const TraceRange range(trace_.get(), "checkpoint");
  try {
    const auto snapshot = [&]() -> CheckpointContents {
      if (shards_) return make_shared_snapshot(decoder_, optimizer_, state, texts_, messages_);
      if (ranks_.rank() != 0) return {};  // the first has everything
      return make_snapshot(decoder_, optimizer_, state, texts_);
    };
    saver_.start(state_.step, *metrics_, snapshot, stays);
  } catch (const Error& error) {
    if (must_succeed) throw;
    saver_.say_failed(state_.step, error);
  }
  if (must_succeed) finish_save(true);
}

void Trainer::finish_save(bool must_succeed) {
  const std::optional<std::int64_t> written = saver_.finish(*metrics_, must_succeed);
  if (written && is_scheduled(*written)) state_.rollbacks = state_.rollback_samples = 0;
}

/// The mean over the sources, if they were evaluated at this step.
std::optional<double> Trainer::heldout_loss() const {
  if (evaluations_.empty() || evaluations_[0].step != state_.step) return std::nullopt;
  double sum = 0;
  for (const EvalMetrics& metrics : evaluations_) sum += metrics.loss;
  return sum / static_cast<double>(evaluations_.size());
}

}  // namespace tetrad
