// SPDX-License-Identifier: Apache-2.0
#include "tetrad/core/failpoint.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad {
namespace detail {

std::atomic<FailpointState> failpoint_state = FailpointState::unread;

}  // namespace detail

namespace {

// In the place of an errno.
constexpr int kKill = -1;
constexpr int kSlow = -2;
constexpr int kHang = -3;

constexpr std::int64_t kAnyRank = -1;

struct Armed {
  std::string_view name;
  int action = 0;
  std::int64_t only_at = 0;         //!< 0: every time
  std::int64_t only_on = kAnyRank;  //!< a rank
  std::int64_t hits = 0;
};

std::mutex armed_mutex;
std::vector<Armed> armed_points;
int own_rank = 0;

Armed parse_point(std::string_view text) {
  const auto refuse = [&](const std::string& reason) {
    fail(
        "failpoint {:?}: {}; write NAME=kill, enospc, eio, enomem, slow or hang, with @N for the N-th time "
        "only and @rankR for rank R only",
        text, reason);
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) refuse("there is no '='");
  const std::string_view name = text.substr(0, equals);
  const auto* const known = std::ranges::find(kFailpoints, name);
  if (known == kFailpoints.end())
    refuse(fmt::format("there is no such point; there are {}", fmt::join(kFailpoints, ", ")));

  Armed point{.name = *known};
  const auto number_from = [&](std::int64_t least, std::string_view digits) {
    std::int64_t number = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || stop != end || number < least)
      refuse(fmt::format("what follows '@' is not a number from {}", least));
    return number;
  };
  std::string_view action = text.substr(equals + 1);
  constexpr std::string_view kRank = "rank";
  for (std::size_t at = action.rfind('@'); at != std::string_view::npos; at = action.rfind('@')) {
    const std::string_view when = action.substr(at + 1);
    if (when.starts_with(kRank))
      point.only_on = number_from(0, when.substr(kRank.size()));
    else
      point.only_at = number_from(1, when);
    action = action.substr(0, at);
  }
  if (action == "kill") {
    point.action = kKill;
  } else if (action == "enospc") {
    point.action = ENOSPC;
  } else if (action == "eio") {
    point.action = EIO;
  } else if (action == "enomem") {
    point.action = ENOMEM;
  } else if (action == "slow") {
    point.action = kSlow;
  } else if (action == "hang") {
    point.action = kHang;
  } else {
    refuse("unknown action");
  }
  return point;
}

std::vector<Armed> parse_points(std::string_view specification) {
  std::vector<Armed> points;
  while (!specification.empty()) {
    const std::size_t comma = std::min(specification.find(','), specification.size());
    points.push_back(parse_point(specification.substr(0, comma)));
    specification.remove_prefix(std::min(comma + 1, specification.size()));
  }
  return points;
}

/// With the mutex held.
void arm(std::string_view specification) {
  armed_points = parse_points(specification);
  detail::failpoint_state.store(
      armed_points.empty() ? detail::FailpointState::off : detail::FailpointState::armed,
      std::memory_order_release);
}

void note_strike() {
  const char* const file = std::getenv("TETRAD_FAILPOINTS_STRUCK");  // NOLINT(concurrency-mt-unsafe)
  if (file != nullptr) ::close(::open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
}

[[noreturn]] void stay_for_good() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

int detail::failpoint_reached(std::string_view name) {
  if (std::ranges::find(kFailpoints, name) == kFailpoints.end())
    throw Error(fmt::format("failpoint {:?} is not listed in kFailpoints; this is a bug", name),
                ExitCode::failure);
  bool is_slow = false;
  bool hangs = false;
  int result = 0;
  {
    const std::lock_guard lock(armed_mutex);
    if (failpoint_state.load(std::memory_order_acquire) == FailpointState::unread) {
      const char* const variable = std::getenv("TETRAD_FAILPOINTS");  // NOLINT(concurrency-mt-unsafe)
      arm(variable == nullptr ? "" : variable);
    }
    for (Armed& point : armed_points) {
      if (point.name != name || (point.only_on != kAnyRank && point.only_on != own_rank)) continue;
      ++point.hits;
      if (point.only_at != 0 && point.hits != point.only_at) continue;
      note_strike();
      if (point.action == kKill) std::raise(SIGKILL);
      is_slow |= point.action == kSlow;
      hangs |= point.action == kHang;
      if (point.action > 0) result = point.action;
    }
  }
  constexpr std::chrono::milliseconds kMoment(5);
  if (hangs) stay_for_good();
  if (is_slow) std::this_thread::sleep_for(kMoment);  // while other threads go on, also through here
  return result;
}

bool failpoint_fails(std::string_view name) {
  const int code = failpoint(name);
  if (code != 0) errno = code;
  return code != 0;
}

void set_failpoint_rank(int rank) {
  const std::lock_guard lock(armed_mutex);
  own_rank = rank;
}

void set_failpoints(std::string_view specification) {
  const std::lock_guard lock(armed_mutex);
  arm(specification);
}

std::int64_t failpoint_hits(std::string_view name) {
  const std::lock_guard lock(armed_mutex);
  const auto found = std::ranges::find(armed_points, name, &Armed::name);
  return found == armed_points.end() ? 0 : found->hits;
}

}  // namespace tetrad
