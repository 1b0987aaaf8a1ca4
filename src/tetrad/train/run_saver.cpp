// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_saver.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "tetrad/parallel/agreement.h"
#include "tetrad/train/schedule.h"

namespace tetrad {

std::int64_t most_checkpoints(const TrainConfig& config) {
  const CheckpointConfig& kept = config.checkpoint;
  if (!kept.enabled) return 0;
  return kept.keep + 2 + (kept.keep_best ? 1 : 0) +
         (kept.keep_every > 0 ? step_count(config) / kept.keep_every : 0);
}

RunSaver::RunSaver(std::filesystem::path run, const TrainConfig& config, Communicator& ranks, RunLog& log)
    : run_(std::move(run)), config_(config), ranks_(ranks), log_(log) {
  if (ranks_.rank() == 0)
    writer_ =
        std::make_unique<CheckpointWriter>(CheckpointStore(run_ / "checkpoints", config.checkpoint.keep));
}

void RunSaver::start(std::int64_t step, Metrics& metrics, const std::function<CheckpointContents()>& contents,
                     CheckpointStore::Stays stays) {
  restart_clock();
  Saving saving{.step = step};
  on_first(ranks_, [&] { metrics.sync(); });
  together(ranks_, [&] { saving.kept = contents(); });
  // Others change nothing until rank 0 has read what it needs, if it needs anything of them.
  saving.is_read = !on_any(ranks_, saving.kept.memory != nullptr);
  on_first(ranks_, [&] { writer_->start(std::move(saving.kept), std::move(stays)); });
  saving_ = std::move(saving);
}

std::optional<std::int64_t> RunSaver::finish(Metrics& metrics, bool must_succeed) {
  if (!saving_) return std::nullopt;
  Saving saving = std::move(*saving_);
  saving_.reset();
  const double begin = steady_seconds();
  try {
    on_first(ranks_, [&] {
      const WrittenCheckpoint written = writer_->finish();
      saving.waited += steady_seconds() - begin;
      say_written(written, saving, metrics);
    });
    saved_step_ = saving.step;
    return saving.step;
  } catch (const Error& error) {
    if (must_succeed) throw;
    say_failed(saving.step, error);
    return std::nullopt;
  }
}

void RunSaver::say_written(const WrittenCheckpoint& written, const Saving& saving, Metrics& metrics) {
  seconds_ = written.seconds;
  metrics.add_checkpoint(saving.step, written.path.string(), written.seconds, written.bytes);
  for (const std::string& warning : written.warnings) log_.say("{}", warning);
  log_.say("checkpoint {} ({:.1f} MB, {:.2f} s; training waited {:.2f} s)", written.path.string(),
           static_cast<double>(written.bytes) / 1e6, written.seconds, saving.waited);
  forecast_space(written.bytes);
}

void RunSaver::say_failed(std::int64_t step, const Error& error) {
  log_.say("NO CHECKPOINT of step {}: {}. The run goes on.", step, error.what());
}

void RunSaver::wait_until_read() {
  if (!saving_) return;
  const double begin = steady_seconds();
  if (writer_) writer_->wait_until_read();
  if (!std::exchange(saving_->is_read, true)) ranks_.barrier();
  saving_->waited += steady_seconds() - begin;
}

std::optional<FoundCheckpoint> RunSaver::newest(std::vector<CheckpointProblem>& problems,
                                                std::int64_t limit) {
  std::optional<FoundCheckpoint> found;
  on_first(ranks_, [&] { found = writer_->store().newest_good(problems, limit); });
  const std::string step = from_first(ranks_, found ? fmt::to_string(found->step) : std::string());
  const std::string path = from_first(ranks_, found ? found->path.string() : std::string());
  if (step.empty()) return std::nullopt;
  return FoundCheckpoint{std::stoll(step), path};
}

bool RunSaver::is_time() const {
  constexpr double kSecondsPerMinute = 60;
  const double minutes = config_.checkpoint.minutes;
  return minutes > 0 && steady_seconds() - begun_at_ >= minutes * kSecondsPerMinute;
}

void RunSaver::forecast_space(std::uint64_t bytes) {
  if (std::exchange(has_forecast_, true)) return;
  const std::int64_t count = most_checkpoints(config_) - std::ssize(writer_->store().list());
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(run_, error);
  const double needed = static_cast<double>(bytes) * static_cast<double>(std::max<std::int64_t>(count, 0));
  if (error || needed <= static_cast<double>(space.available)) return;
  log_.say(
      "WARNING: the checkpoints to come need {:.1f} GB, and the disk has {:.1f} GB free: make room, or keep "
      "fewer "
      "(train.checkpoint.keep, keep_every, keep_best)",
      needed / 1e9, static_cast<double>(space.available) / 1e9);
}

}  // namespace tetrad
