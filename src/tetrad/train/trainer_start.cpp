// SPDX-License-Identifier: Apache-2.0
// How a run begins: anew, from weights, as a branch, or where it was interrupted.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/core/error.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/train/resume.h"
#include "tetrad/train/trainer.h"

namespace tetrad {

void Trainer::start() {
  if (state_.identity.branch) return branch_off(*state_.identity.branch);
  if (config_.train.from.empty())
    decoder_.initialize(config_.train.init_seed());
  else
    take_weights(config_.train.from);
  open_metrics(-1);
  saver_.restart_clock();
  if (saves_ends_) save(true);
  const HealthConfig& health = config_.train.health;
  if ((health.policy == "rollback" || health.on_spike == "rollback") && config_.train.checkpoint.every == 0)
    log_.say(
        "WARNING: train.health asks for rollbacks, but without train.checkpoint.every they go back to step "
        "0");
}

/// The weights alone: moments, step and order of the data begin anew.
void Trainer::take_weights(const std::filesystem::path& from) {
  OpenCheckpoint open;  // held by rank 0
  on_first(ranks_, [&] {
    std::vector<CheckpointProblem> problems;
    open = open_checkpoint(from, problems);
    say_problems(problems);
  });
  const std::filesystem::path checkpoint = from_first(ranks_, open.path().string());
  const std::string hash = load_state(checkpoint).tokenizer_hash;
  TETRAD_CHECK(hash.empty() || dataset_.tokenizer_hash().empty() || hash == dataset_.tokenizer_hash(),
               "the data was made with another tokenizer ({}) than the weights in {} ({}): prepare it with "
               "theirs (tetrad data prepare --tokenizer)",
               dataset_.tokenizer_hash(), checkpoint.string(), hash);
  load_weights(checkpoint, decoder_);
  log_.say("weights from {}", checkpoint.string());
}

/// Weights, moments, step, cursors of the data and the past of the loss.
void Trainer::branch_off(const BranchPoint& from) {
  OpenCheckpoint open;  // held by rank 0
  on_first(ranks_, [&] {
    std::vector<CheckpointProblem> problems;
    open = open_checkpoint(from.checkpoint, problems);
    TETRAD_CHECK(branch_point(open.path()).sha256 == from.sha256,
                 "{} is no longer the checkpoint that this run was to branch off from", from.checkpoint);
  });
  const std::filesystem::path checkpoint = from_first(ranks_, open.path().string());
  load(checkpoint, GoesOn::as_branch);
  saver_.restart_clock();
  open_metrics(-1);
  log_.say("branches off from {} (run {}, step {} of {}, SHA-256 {})", from.checkpoint, from.run, from.step,
           steps_, from.sha256);
  metrics_->add_branch(from);
  note_changed_settings(checkpoint);
  if (saves_ends_) save(true);
}

void Trainer::say_problems(const std::vector<CheckpointProblem>& problems) {
  for (const CheckpointProblem& problem : problems)
    log_.say("checkpoint {} cannot be used: {}{}", problem.path.string(), problem.what,
             problem.moved_to.empty() ? "" : "; moved to " + problem.moved_to.string());
}

void Trainer::open_metrics(std::int64_t last_step) {
  metrics_ = std::make_unique<Metrics>();
  on_first(ranks_, [&] {
    metrics_ = std::make_unique<Metrics>(folder_, last_step, page_,
                                         [this](const std::string& warning) { log_.say("{}", warning); });
  });
  metrics_->show_config(texts_.config);
}

bool Trainer::note_changed_settings(const std::filesystem::path& checkpoint) {
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  const std::vector<SettingChange> changes = changed_settings(load_config(files, {}), config_);
  for (const SettingChange& change : changes) {
    log_.say("changed at step {}: {} from {} to {}", state_.step, change.key, change.before, change.after);
    metrics_->add_change(state_.step, change.key, change.before, change.after);
  }
  return !changes.empty();
}

void Trainer::resume(bool changes_are_meant) {
  const std::optional<FoundCheckpoint> checkpoint = newest_checkpoint();
  if (!checkpoint) {
    // A run that was stopped while it wrote its very first checkpoint has lost nothing.
    on_first(ranks_, [&] {
      if (run_folder_.has_made_no_step()) return;
      throw Error(
          fmt::format("{} has trained, but its checkpoints are gone; to begin anew, train with --out and "
                      "another folder",
                      folder_.string()),
          ExitCode::no_checkpoint);
    });
    log_.say("{} was stopped before its first checkpoint: beginning anew", folder_.string());
    start();
    return;
  }
  load(checkpoint->path, changes_are_meant ? GoesOn::changed : GoesOn::as_it_was);
  TETRAD_CHECK(state_.step <= steps_,
               "the run has made {} steps already, more than the {} that it is to have", state_.step, steps_);
  saver_.found(state_.step);
  saver_.restart_clock();
  open_metrics(state_.step);
  metrics_->resume_from(state_.step, checkpoint->path.string(), checkpoint_bytes(checkpoint->path));
  log_.say("resumed from {} (step {} of {})", checkpoint->path.string(), state_.step, steps_);
  metrics_->add_resume(state_.step, state_.build);
  if (!changes_are_meant || !note_changed_settings(checkpoint->path)) return;
  saver_.forget();  // once more, with these settings
  save(true);
}

std::optional<FoundCheckpoint> Trainer::newest_checkpoint(std::int64_t limit) {
  std::vector<CheckpointProblem> problems;
  std::optional<FoundCheckpoint> found = saver_.newest(problems, limit);
  say_problems(problems);
  return found;
}

void Trainer::load(const std::filesystem::path& checkpoint, GoesOn how) {
  const std::string build = state_.build;
  const BitsDependOn bits_depend_on = state_.bits_depend_on;
  const RunIdentity identity = state_.identity;
  together(ranks_, [&] {
    check_is_ours(checkpoint, how);
    state_ = load_snapshot(checkpoint, decoder_, optimizer_,
                           how == GoesOn::as_it_was ? MomentTypes::same : MomentTypes::may_change);
  });
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
    throw Error(fmt::format("{}/state.json cannot be used: {}", checkpoint.string(), error.what()),
                ExitCode::no_checkpoint);
  }
}

void Trainer::check_is_ours(const std::filesystem::path& checkpoint, GoesOn how) const {
  const bool changes_are_meant = how != GoesOn::as_it_was;
  RunIdentity saved = load_state(checkpoint).identity;
  if (how == GoesOn::as_branch) saved.id.clear();  // another run's, and meant
  check_same_run(saved, state_.identity, checkpoint.string(), changes_are_meant);
  if (saved.config == state_.identity.config) return;
  // Another hash may only mean that this program has settings which that one had not.
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  check_resumable(load_config(files, {}), config_, files[0], changes_are_meant);
}

}  // namespace tetrad
