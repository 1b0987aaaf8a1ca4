// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "tetrad/core/float_environment.h"
#include "tetrad/core/team.h"

namespace tetrad {
namespace {

constexpr std::int64_t kMostPieces = std::int64_t{1} << 23;  //!< that a team counts

/// 0 if the variable is not set, or is no positive number. OMP_NUM_THREADS may be a list, one number for each
/// level of nesting; the first counts.
int from_environment(const char* variable) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment
  if (text == nullptr) return 0;
  const std::string_view value(text);
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  const bool is_number = error == std::errc{} && (end == value.data() + value.size() || *end == ',');
  return is_number ? std::max(count, 0) : 0;
}

int cores_of_this_process() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());  // more cores than a cpu_set_t counts
}

/// How many cores' time a container may use, rounded up; nothing written there means all.
int quota_of_container(int cores) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return cores;
  return static_cast<int>(std::min<std::int64_t>(cores, (quota + period - 1) / period));
}

}  // namespace

int default_thread_count() {
  for (const char* variable : {"TETRAD_THREADS", "OMP_NUM_THREADS"})
    if (const int count = from_environment(variable); count > 0) return count;
  return std::max(1, quota_of_container(cores_of_this_process()));
}

Threads::Threads(int count) : count_(count > 0 ? count : default_thread_count()) {}

Threads::~Threads() { forget_team_of_another_process(); }

void Threads::forget_team_of_another_process() {
  // The threads of the process that this one was forked from are not here to be ended.
  if (team_ && !team_->is_of_this_process())
    static_cast<void>(team_.release());  // NOLINT(bugprone-unused-return-value)
}

int Threads::worker() const { return team_ ? std::max(0, team_->worker()) : 0; }

void Threads::run(std::int64_t count, Call call, const void* body) {
  const FloatEnvironment environment;
  if (count_ == 1 || count <= 1 || (team_ && team_->worker() >= 0)) {
    for (std::int64_t i = 0; i < count; ++i) call(body, i);
    return;
  }
  forget_team_of_another_process();
  if (!team_) team_ = std::make_unique<Team>(count_ - 1);
  if (count <= kMostPieces) return team_->run(count, call, body);
  const std::int64_t group = (count + kMostPieces - 1) / kMostPieces;
  const auto groups = [&](std::int64_t g) {
    for (std::int64_t i = g * group; i < std::min(count, (g + 1) * group); ++i) call(body, i);
  };
  parallel_for((count + group - 1) / group, groups);
}

}  // namespace tetrad
