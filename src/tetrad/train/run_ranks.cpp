// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "tetrad/checkpoint/run_identity.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/launch.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// A rank that ends the run ends it before others have said where they are; the one that says nothing, or
/// that it waits for nobody, is the one to look at.
constexpr std::chrono::seconds kForOthersToSpeak(2);

/// A file in a folder for as long as this lives, with a name that was never there before: a copy of the
/// folder on another machine's disk does not have it. It is named as a file that is being written, which is
/// removed where a killed run goes on.
class Sign {
 public:
  explicit Sign(fs::path file) : file_(std::move(file)) { write_file_atomically(file_, ""); }
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;
  ~Sign() {
    std::error_code ignored;
    fs::remove(file_, ignored);
  }

 private:
  fs::path file_;
};

}  // namespace

std::chrono::milliseconds patience_between_ranks(const RunConfig& config) {
  constexpr double kMillisecondsPerMinute = 60'000;
  return std::chrono::milliseconds(std::llround(config.rank_minutes * kMillisecondsPerMinute));
}

RunFolder hold_for_all(Communicator& ranks, const fs::path& path, const std::function<RunFolder()>& hold) {
  std::optional<RunFolder> folder;
  std::optional<Sign> sign;
  const std::string name = "run.json.tmp.seen-by-all-" + from_first(ranks, new_run_id());
  on_first(ranks, [&] {
    folder = hold();
    if (ranks.size() > 1) sign.emplace(path / name);
  });
  const std::string id = from_first(ranks, folder ? folder->id() : std::string());
  together(ranks, [&] {
    if (!folder) folder = RunFolder::join(path, id, name);
  });
  return std::move(*folder);
}

std::unique_ptr<Watchdog> watch_ranks(Communicator& ranks, const RunConfig& config) {
  WatchdogOptions options{
      .rank = ranks.rank(), .host = host_name(), .time_out = patience_between_ranks(config)};
  if (ranks.size() > 1)
    options.tell = [](const std::string& message) { fmt::print(stderr, "tetrad: {}\n", message); };
  return std::make_unique<Watchdog>(
      std::move(options), [&ranks] { return ranks.pending(); },
      [&ranks](const std::string& message) {
        fmt::print(stderr, "tetrad: {}\n", message);
        std::this_thread::sleep_for(kForOthersToSpeak);
        ranks.abort("it has waited for another one for too long");
      });
}

}  // namespace tetrad
