// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/metrics.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/core/utc_time.h"
#include "tetrad/train/metrics_page.h"

namespace tetrad {

Metrics::Metrics(const std::filesystem::path& folder, std::int64_t last_step, MetricsPage* page,
                 std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)),
      files_(new Files{MetricsLog(folder / "metrics.jsonl", last_step),
                       TensorBoardWriter(folder, last_step + 1)}),
      page_(page) {}

void Metrics::append(nlohmann::json line) {
  if (!files_) return;
  line["time"] = utc_time(std::time(nullptr));
  constexpr std::size_t kMostWaiting = 500'000;  // some 150 MB
  waiting_.push_back({line.at("step").get<std::int64_t>(), line.dump()});
  if (waiting_.size() > kMostWaiting) waiting_.pop_front();
  try {
    write_waiting();
    log_fails_ = false;
  } catch (const Error& error) {
    if (!log_fails_) warn_(fmt::format("{}: lines wait in memory until there is room", error.what()));
    log_fails_ = true;
  }
}

void Metrics::write_waiting() {
  for (; !waiting_.empty(); waiting_.pop_front()) files_->log.append(waiting_.front().text);
}

template <typename Draw>
void Metrics::try_to(const Draw& draw) {
  if (!files_) return;
  try {
    draw();
    events_fail_ = false;
  } catch (const Error& error) {
    if (!events_fail_) warn_(error.what());
    events_fail_ = true;
  }
}

void Metrics::draw(const std::string& tag, std::int64_t step, double value) {
  try_to([&] { files_->events.scalar(tag, step, value); });
}

void Metrics::draw_text(const std::string& tag, std::int64_t step, const std::string& text) {
  try_to([&] { files_->events.text(tag, step, text); });
}

void Metrics::cut_after(std::int64_t step) {
  if (!files_) return;
  std::erase_if(waiting_, [&](const Line& line) { return line.step > step; });
  files_->log.cut_after(step);
}

void Metrics::add(const StepMetrics& m) {
  nlohmann::json line = {
      {"kind", "train"},          {"step", m.step},       {"tokens", m.tokens},
      {"loss", m.loss},  // null if it is not finite
      {"grad_norm", m.grad_norm}, {"lr", m.lr},           {"tokens_per_s", m.tokens_per_s},
      {"tflops", m.tflops},       {"seconds", m.seconds}, {"memory_bytes", m.memory_bytes}};
  if (m.joules) line["joules"] = *m.joules;
  if (m.device_busy) line["device_busy"] = *m.device_busy;
  if (m.skipped) line["skipped"] = true;
  append(line);
  draw("train/loss", m.step, m.loss);
  draw("train/grad_norm", m.step, m.grad_norm);
  draw("train/lr", m.step, m.lr);
  draw("train/tokens_per_s", m.step, m.tokens_per_s);
  if (page_ != nullptr) page_->add(m);
}

void Metrics::add(const EvalMetrics& m) {
  nlohmann::json line = {
      {"kind", "eval"}, {"step", m.step}, {"tokens", m.tokens}, {"source", m.source}, {"loss", m.loss}};
  if (m.bits_per_byte) line["bits_per_byte"] = *m.bits_per_byte;
  if (m.excess_nats) line["excess_nats"] = *m.excess_nats;
  if (m.bf16_loss) line["bf16_loss"] = *m.bf16_loss;
  append(line);
  draw("eval/" + m.source + "/loss", m.step, m.loss);
  if (m.bf16_loss) draw("eval/" + m.source + "/bf16_loss", m.step, *m.bf16_loss);
  if (page_ != nullptr) page_->add(m);
}

void Metrics::add(const HealthEvent& e) {
  append({{"kind", "event"}, {"step", e.step}, {"what", e.what}, {"where", e.where}, {"action", e.action}});
  if (page_ != nullptr) page_->add(e);
}

void Metrics::add_checkpoint(std::int64_t step, const std::string& path, std::optional<double> seconds,
                             std::uint64_t bytes) {
  nlohmann::json line = {{"kind", "checkpoint"}, {"step", step}, {"path", path}, {"bytes", bytes}};
  if (seconds) line["seconds"] = *seconds;
  append(line);
  if (page_ != nullptr && seconds) page_->add_checkpoint(step, *seconds, bytes);
}

void Metrics::resume_from(std::int64_t step, const std::string& checkpoint, std::uint64_t bytes) {
  if (files_ && !files_->log.cut_after_checkpoint(step))
    add_checkpoint(step, checkpoint, std::nullopt, bytes);
}

void Metrics::add(std::int64_t step, const std::vector<OperandStats>& stats) {
  for (const OperandStats& s : stats) {
    const std::string_view name = name_of(s.operand);
    append({{"kind", "quant"},
            {"step", step},
            {"layer", s.layer},
            {"gemm", name.substr(0, name.find('.'))},
            {"operand", name.substr(name.find('.') + 1)},
            {"underflow", s.stats.flushed_fraction()},
            {"saturated", s.stats.saturated_fraction()},
            {"zero_scale_blocks", s.stats.zero_scale_blocks},
            {"sqnr_db", s.stats.sqnr_db()},
            {"amax", s.stats.amax}});
    const std::string tag = fmt::format("quantizer/{}/{}/", s.layer, name);
    draw(tag + "sqnr_db", step, s.stats.sqnr_db());
    draw(tag + "underflow", step, s.stats.flushed_fraction());
    draw(tag + "amax", step, s.stats.amax);
  }
}

void Metrics::sync() {
  if (!files_) return;
  write_waiting();
  files_->log.sync();
  try_to([&] { files_->events.flush(); });
}

void Metrics::add_branch(const BranchPoint& from) {
  nlohmann::json line = from;
  line["kind"] = "branch";  // `step` is that of the checkpoint
  append(line);
  draw_text("run/branched", from.step, fmt::format("off from step {} of run {}", from.step, from.run));
}

void Metrics::add_resume(std::int64_t step, const std::string& build) {
  append({{"kind", "resume"}, {"step", step}, {"build", build}});
  draw_text("run/resumed", step, "by build " + build);
}

void Metrics::add_change(std::int64_t step, const std::string& what, const std::string& before,
                         const std::string& after) {
  append({{"kind", "change"}, {"step", step}, {"what", what}, {"before", before}, {"after", after}});
  draw_text("run/changes", step, fmt::format("{}: {} → {}", what, before, after));
}

void Metrics::show_config(const std::string& yaml) {
  std::string indented = "    ";  // Markdown: as it is
  for (const char character : yaml) {
    indented += character;
    if (character == '\n') indented += "    ";
  }
  draw_text("run/config", 0, indented);
}

}  // namespace tetrad
