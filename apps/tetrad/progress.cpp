#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tetrad/core/error.h"

namespace tetrad::app {

void show_progress(std::string_view what, std::int64_t done, std::int64_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  const double percent = total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0;
  fmt::print(stderr, "\r\033[K{} {:.0f} %", what, percent);
  if (done >= total) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::function<void(std::int64_t, std::int64_t)> stoppable_progress(std::string_view what,
                                                                   const StopSignals& signals) {
  return [what, &signals](std::int64_t done, std::int64_t total) {
    show_progress(what, done, total);
    if (signals.received())
      throw Error(fmt::format("{} was stopped by a signal; nothing was written", what), ExitCode::failure);
  };
}

}  // namespace tetrad::app
