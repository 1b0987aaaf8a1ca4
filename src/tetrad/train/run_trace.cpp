// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/io/atomic_file.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/train/run_log.h"

namespace tetrad {

RunTrace::RunTrace(Backend& backend, Routes& routes, std::filesystem::path file)
    : backend_(backend), routes_(routes), file_(std::move(file)) {
  routes_.ranks().barrier();  // so that all count from the same time
  start_ = steady_seconds();
  if (routes_.ranks().size() == 1) return;
  for (const auto& [name, ranks] : routes_.communicators()) {
    lanes_.push_back(std::make_unique<Lane>(*this, name, lanes_.size() + 1));
    ranks->tell(lanes_.back().get());
  }
}

RunTrace::~RunTrace() {
  for (const auto& [name, ranks] : routes_.communicators()) {
    try {
      ranks->tell(nullptr);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a broken device, of which others have heard
    }
  }
}

double RunTrace::now() const { return steady_seconds() - start_; }

std::size_t RunTrace::begin_part(std::string name, std::size_t line) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({std::move(name), line, now(), 0});
  return parts_.size() - 1;
}

void RunTrace::end_part(std::size_t index) {
  const std::lock_guard lock(mutex_);
  parts_[index].end = now();
}

void RunTrace::Lane::began(const CollectiveCall& call) {
  open_[call.number] = trace_.begin_part(fmt::format("{} {}", name_of(call.collective), call.number), line_);
}

void RunTrace::Lane::ended(const CollectiveCall& call) {
  const auto found = open_.find(call.number);
  if (found == open_.end()) return;  // it began before the trace
  trace_.end_part(found->second);
  open_.erase(found);
}

void RunTrace::begin(const std::string& name) {
  backend_.begin_range(name);
  open_.push_back(begin_part(name, 0));
}

void RunTrace::end() {
  backend_.synchronize();
  end_part(open_.back());
  open_.pop_back();
  backend_.end_range();
}

/// Of this rank.
std::string RunTrace::events() const {
  constexpr double kMicroseconds = 1e6;
  const int rank = routes_.ranks().rank();
  nlohmann::json events = nlohmann::json::array();
  const auto name = [&](const char* what, std::size_t line, const std::string& text) {
    events.push_back({{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", line}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, fmt::format("rank {}", rank));
  name("thread_name", 0, "computes");
  for (std::size_t i = 0; i < lanes_.size(); ++i) name("thread_name", i + 1, "between " + lanes_[i]->name());
  const std::lock_guard lock(mutex_);
  for (const Part& part : parts_)
    if (part.end > 0)
      events.push_back({{"name", part.name},
                        {"ph", "X"},  // a complete event
                        {"pid", rank},
                        {"tid", part.line},
                        {"ts", part.begin * kMicroseconds},
                        {"dur", (part.end - part.begin) * kMicroseconds}});
  return events.dump();
}

void RunTrace::write() {
  const std::vector<std::string> of_ranks = routes_.ranks().share(events());
  on_first(routes_.ranks(), [&] {
    nlohmann::json all = nlohmann::json::array();
    for (const std::string& events : of_ranks)
      for (nlohmann::json& event : nlohmann::json::parse(events)) all.push_back(std::move(event));
    write_file_atomically(file_,
                          nlohmann::json{{"traceEvents", all}, {"displayTimeUnit", "ms"}}.dump() + "\n");
  });
}

}  // namespace tetrad
