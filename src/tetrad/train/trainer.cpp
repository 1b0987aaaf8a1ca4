// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/trainer.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/eval/evaluation.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"
#include "tetrad/train/resume.h"
#include "tetrad/train/schedule.h"

namespace tetrad {
namespace {

std::string with_unit(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.0f}", value);
}

}  // namespace

std::int64_t step_count(const TrainConfig& config) {
  return config.steps > 0 ? config.steps : ceil_div(config.tokens, config.batch * config.sequence);
}

MemoryCase memory_case(const Config& config) {
  const TrainConfig& train = config.train;
  return {.batch = train.microbatch > 0 ? train.microbatch : train.batch,
          .sequence = train.sequence,
          .storage = storage_type(config.precision),
          .recompute = recompute_from_name(train.recompute),
          .telemetry = train.telemetry_every > 0};
}

Dataset open_dataset(Threads& threads, const Config& config) {
  return Dataset(threads, config.data,
                 {.sequence = config.train.sequence,
                  .vocab = config.model.vocab,
                  .samples = step_count(config.train) * config.train.batch,
                  .seed = config.train.seed});
}

Trainer::Trainer(const Config& config, Dataset dataset, std::string resolved, std::string build,
                 const RunFolder& folder, Backend& backend, RunLog& log)
    : config_(config),
      texts_{std::move(resolved), {}},
      folder_(folder.path()),
      backend_(backend),
      log_(log),
      steps_(step_count(config.train)),
      microbatch_(config.train.microbatch > 0 ? config.train.microbatch : config.train.batch),
      recipe_(config.precision, config.model.blocks()),
      dataset_(std::move(dataset)),
      decoder_(backend, config.model, microbatch_, config.train.sequence, storage_type(config.precision),
               recompute_from_name(config.train.recompute)),
      optimizer_(backend, decoder_.parameters(), config.optim),
      store_(folder_ / "checkpoints", config.train.checkpoint.keep),
      watch_(config.train.health),
      inputs_(static_cast<std::size_t>(microbatch_ * config.train.sequence)),
      targets_(inputs_.size()),
      document_starts_(dataset_.masks_documents() ? inputs_.size() : 0),
      losses_(inputs_.size()) {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(dataset_.tokenizer()))
    texts_.tokenizer = to_tokenizer_json(bpe->definition());
  state_.tokenizer_hash = dataset_.tokenizer_hash();
  state_.build = std::move(build);
  state_.identity = {folder.id(), settings_hash(config_), dataset_.hashes()};
  for (const auto& [name, value] : decoder_.backend().bits_depend_on()) state_.bits_depend_on[name] = value;
}

void Trainer::start() {
  if (config_.train.from.empty())
    decoder_.initialize(config_.train.seed);
  else
    take_weights(config_.train.from);
  open_metrics(-1);
  if (saves_ends_) save(true);
}

/// The weights alone: moments, step and order of the data begin anew.
void Trainer::take_weights(const std::filesystem::path& from) {
  std::vector<CheckpointProblem> problems;
  const std::filesystem::path checkpoint = open_checkpoint(from, problems);
  for (const CheckpointProblem& problem : problems)
    log_.say("checkpoint {} cannot be used: {}", problem.path.string(), problem.what);
  const std::string hash = load_state(checkpoint).tokenizer_hash;
  TETRAD_CHECK(hash.empty() || dataset_.tokenizer_hash().empty() || hash == dataset_.tokenizer_hash(),
               "the data was made with another tokenizer ({}) than the weights in {} ({}): prepare it with "
               "theirs (tetrad data prepare --tokenizer)",
               dataset_.tokenizer_hash(), checkpoint.string(), hash);
  load_weights(checkpoint, decoder_);
  log_.say("weights from {}", checkpoint.string());
}

void Trainer::open_metrics(std::int64_t last_step) {
  metrics_ = std::make_unique<Metrics>(folder_, last_step, page_,
                                       [this](const std::string& warning) { log_.say("{}", warning); });
}

void Trainer::resume() {
  const std::optional<FoundCheckpoint> checkpoint = newest_checkpoint();
  if (!checkpoint) {
    // A run that was stopped while it wrote its very first checkpoint has lost nothing.
    std::error_code ignored;
    if (const auto size = std::filesystem::file_size(folder_ / "metrics.jsonl", ignored);
        !ignored && size > 0)
      throw Error(
          fmt::format("{} has trained, but its checkpoints are gone; to begin anew, train with --out and "
                      "another folder",
                      folder_.string()),
          ExitCode::no_checkpoint);
    log_.say("{} was stopped before its first checkpoint: beginning at step 0", folder_.string());
    start();
    return;
  }
  load(*checkpoint);
  open_metrics(state_.step);
  log_.say("resumed from {} (step {} of {})", checkpoint->path.string(), state_.step, steps_);
}

std::optional<FoundCheckpoint> Trainer::newest_checkpoint() {
  std::vector<CheckpointProblem> problems;
  std::optional<FoundCheckpoint> found = store_.newest_good(problems);
  for (const CheckpointProblem& problem : problems)
    log_.say("checkpoint {} cannot be used: {}{}", problem.path.string(), problem.what,
             problem.moved_to.empty() ? "" : "; moved to " + problem.moved_to.string());
  return found;
}

void Trainer::load(const FoundCheckpoint& checkpoint) {
  const std::string build = state_.build;
  const BitsDependOn bits_depend_on = state_.bits_depend_on;
  const RunIdentity identity = state_.identity;
  check_is_ours(checkpoint.path);
  state_ = load_snapshot(checkpoint.path, decoder_, optimizer_);
  TETRAD_CHECK(state_.tokenizer_hash == dataset_.tokenizer_hash(),
               "the data was made with another tokenizer ({}) than the one this run began with ({})",
               dataset_.tokenizer_hash(), state_.tokenizer_hash);
  if (state_.build != build)
    log_.say("the checkpoint is of build {}, this program is {}: results may differ in their last bits",
             state_.build, build);
  state_.build = build;
  if (const std::string changes = changes_of_bits(state_.bits_depend_on, bits_depend_on); !changes.empty())
    log_.say("warning: results may differ in their last bits from those of a run that was never stopped: {}",
             changes);
  state_.bits_depend_on = bits_depend_on;
  state_.identity = identity;
  try {
    dataset_.restore(state_.data);
    watch_.restore(state_.loss_watch);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}/state.json cannot be used: {}", checkpoint.path.string(), error.what()),
                ExitCode::no_checkpoint);
  }
}

void Trainer::check_is_ours(const std::filesystem::path& checkpoint) const {
  const RunIdentity saved = load_state(checkpoint).identity;
  check_same_run(saved, state_.identity, checkpoint.string());
  if (saved.config == state_.identity.config) return;
  // Another hash may only mean that this program has settings which that one had not.
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  check_resumable(load_config(files, {}), config_, files[0]);
}

Pass Trainer::make_pass(std::int64_t microbatch) const {
  Pass pass;
  pass.recipe = &recipe_;
  pass.seed = config_.train.seed;
  pass.step = static_cast<std::uint32_t>(state_.step);
  pass.microbatch = static_cast<std::uint32_t>(microbatch);
  pass.progress = static_cast<double>(state_.step) / static_cast<double>(steps_);
  pass.telemetry = microbatch == 0 && config_.train.telemetry_every > 0 &&
                   (state_.step + 1) % config_.train.telemetry_every == 0;
  return pass;
}

Ending Trainer::run(const StopSignals& signals) {
  while (state_.step < steps_) {
    if (signals.received()) {
      save(true);
      log_.say("stopped by a signal after step {}; go on with: tetrad train --resume {}", state_.step,
               folder_.string());
      return Ending::stopped_by_signal;
    }
    const double begin = steady_seconds();
    const nlohmann::json cursors = dataset_.state();
    StepOutcome outcome = compute_gradients(signals);
    if (outcome.interrupted) {
      dataset_.restore(cursors);  // the step will be made again, whole
      continue;
    }
    if (outcome.fault && !handle_fault(outcome, cursors)) return Ending::diverged;
    if (outcome.fault && outcome.fault->action == "rollback") continue;
    if (!outcome.fault) apply(outcome);
    ++state_.step;
    report(outcome, steady_seconds() - begin);
    if (watch_.diverged()) {
      log_.say("diverged: the smoothed loss {:.3f} has been {:.2f} nats above its best {:.3f} for {} steps",
               watch_.smoothed(), watch_.smoothed() - watch_.best(), watch_.best(),
               config_.train.health.divergence_steps);
      metrics_->add(HealthEvent{state_.step, "divergence", "loss", "stop"});
      save(false);
      return Ending::diverged;
    }
    const bool last = state_.step == steps_;
    const auto due = [&](std::int64_t every) { return every > 0 && state_.step % every == 0; };
    if (last || due(config_.train.eval.every)) evaluate();
    const bool asked_for = signals.take_checkpoint_request();
    if ((last && saves_ends_) || due(config_.train.checkpoint.every) || asked_for) save(last);
  }
  return Ending::finished;
}

Trainer::StepOutcome Trainer::compute_gradients(const StopSignals& signals) {
  StepOutcome outcome;
  outcome.learning_rate = learning_rate(config_.schedule, config_.optim.lr, state_.step, steps_);
  decoder_.clear_gradients();
  double loss_sum = 0;
  std::optional<Pass> first_bad;
  const std::int64_t microbatches = config_.train.batch / microbatch_;
  double told = steady_seconds();
  for (std::int64_t i = 0; i < microbatches; ++i) {
    if (i > 0 && signals.received()) {
      outcome.interrupted = true;
      return outcome;
    }
    const double begin = steady_seconds();
    dataset_.next(microbatch_, inputs_, targets_, document_starts_);
    Pass pass = make_pass(i);
    decoder_.train(pass, inputs_, targets_, 1.0f / static_cast<float>(tokens_per_step()), losses_,
                   document_starts_);
    loss_sum = std::accumulate(losses_.begin(), losses_.end(), loss_sum);
    if (pass.telemetry) outcome.stats = std::move(pass.stats);
    if (pass.non_finite && !first_bad) first_bad = pass;
    const double now = steady_seconds();
    signals.expect_seconds(now - begin + save_seconds_);
    constexpr double kLong = 10;  // seconds without a sign of life
    if (now - told > kLong && i + 1 < microbatches) {
      log_.progress(
          fmt::format("step {}/{}: microbatch {} of {}", state_.step + 1, steps_, i + 1, microbatches));
      told = now;
    }
  }
  outcome.loss = loss_sum / static_cast<double>(tokens_per_step());
  if (failpoint("train.non_finite") != 0) outcome.loss = std::numeric_limits<double>::quiet_NaN();
  const AdamWOptimizer::GradientReport gradients = optimizer_.inspect();
  outcome.grad_norm = gradients.norm;
  outcome.fault = find_fault(first_bad.value_or(Pass{}), outcome, gradients);
  return outcome;
}

std::optional<HealthEvent> Trainer::find_fault(const Pass& pass, const StepOutcome& outcome,
                                               const AdamWOptimizer::GradientReport& report) const {
  const std::int64_t step = state_.step + 1;
  const HealthConfig& health = config_.train.health;
  if (pass.non_finite)
    return HealthEvent{step, "non-finite quantizer input", *pass.non_finite, health.policy};
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
  const std::int64_t limit = config_.train.health.max_skips;
  if (event.action == "skip" && state_.skips_in_row < limit) {
    ++state_.skips_in_row;
    metrics_->add(event);
    return true;
  }
  if (event.action == "rollback" && rollbacks_ < limit) {
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

/// Back to the last checkpoint, and past the data that the run went bad on.
void Trainer::roll_back(HealthEvent event) {
  const std::int64_t bad_step = state_.step;
  const std::optional<FoundCheckpoint> checkpoint = newest_checkpoint();
  if (!checkpoint) throw Error("there is no checkpoint to go back to", ExitCode::no_checkpoint);
  load(*checkpoint);
  ++rollbacks_;
  rollback_samples_ += (bad_step + 1 - state_.step) * config_.train.batch;
  dataset_.mixture().skip(rollback_samples_);
  metrics_->cut_after(state_.step);
  event.what += fmt::format(" at step {}", event.step);
  event.step = state_.step;
  metrics_->add(event);
  log_.say("went back to step {}; {} sequences are left out", state_.step, rollback_samples_);
}

void Trainer::apply(const StepOutcome& outcome) {
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

void Trainer::evaluate() {
  evaluations_.clear();
  for (const std::string& source : dataset_.source_names()) {
    const TokenSequences* heldout = dataset_.heldout(source);
    if (heldout == nullptr) continue;
    Pass pass = make_pass(0);
    pass.telemetry = false;
    const Evaluation result =
        tetrad::evaluate(decoder_, pass, *heldout, microbatch_, config_.train.eval.sequences);
    EvalMetrics metrics{
        state_.step,       state_.step * tokens_per_step(), source, result.loss, result.bits_per_byte,
        result.excess_nats};
    metrics_->add(metrics);
    evaluations_.push_back(metrics);
    log_.say(
        "step {}: {} held out: loss {:.4f}{}{}", state_.step, source, metrics.loss,
        metrics.bits_per_byte ? fmt::format(", {:.4f} bits per byte", *metrics.bits_per_byte) : "",
        metrics.excess_nats ? fmt::format(", {:+.4f} nats over the true entropy", *metrics.excess_nats) : "");
  }
}

void Trainer::save(bool must_succeed) {
  state_.data = dataset_.state();
  state_.loss_watch = watch_.state();
  try {
    metrics_->sync();
    const WrittenCheckpoint written = store_.write(make_snapshot(decoder_, optimizer_, state_, texts_));
    rollbacks_ = 0;
    rollback_samples_ = 0;
    save_seconds_ = written.seconds;
    metrics_->add_checkpoint(state_.step, written.path.string(), written.seconds, written.bytes);
    for (const std::string& warning : written.warnings) log_.say("{}", warning);
    log_.say("checkpoint {} ({:.1f} MB, {:.2f} s)", written.path.string(),
             static_cast<double>(written.bytes) / 1e6, written.seconds);
  } catch (const Error& error) {
    if (must_succeed) throw;
    log_.say("NO CHECKPOINT of step {}: {}. The run goes on.", state_.step, error.what());
  }
}

}  // namespace tetrad
