// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_trace.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/io/atomic_file.h"
#include "tetrad/train/run_log.h"

namespace tetrad {

RunTrace::RunTrace(Backend& backend, std::filesystem::path file)
    : backend_(backend), file_(std::move(file)), start_(steady_seconds()) {}

void RunTrace::begin(const std::string& name) {
  backend_.begin_range(name);
  open_.push_back(parts_.size());
  parts_.push_back({name, steady_seconds() - start_, 0});
}

void RunTrace::end() {
  backend_.synchronize();
  parts_[open_.back()].end = steady_seconds() - start_;
  open_.pop_back();
  backend_.end_range();
}

void RunTrace::write() const {
  constexpr double kMicroseconds = 1e6;
  nlohmann::json events = nlohmann::json::array();
  for (const Part& part : parts_)
    if (part.end > 0)
      events.push_back({{"name", part.name},
                        {"ph", "X"},  // a complete event
                        {"pid", 1},
                        {"tid", 1},
                        {"ts", part.begin * kMicroseconds},
                        {"dur", (part.end - part.begin) * kMicroseconds}});
  write_file_atomically(file_,
                        nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n");
}

}  // namespace tetrad
