// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "terminal.h"
#include "tetrad/core/error.h"
#include "tetrad/train/run_log.h"

namespace tetrad::app {
namespace {

bool on_terminal() { return isatty(STDERR_FILENO) != 0; }

void overwrite_line(std::string_view line) { write_to_stderr(fmt::format("\r\033[K{}", line)); }

}  // namespace

void show_progress(std::string_view what, std::int64_t done, std::int64_t total) {
  if (!on_terminal()) return;
  const double percent = total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0;
  overwrite_line(done < total ? fmt::format("{} {:.0f} %", what, percent) : "");
}

std::function<void(std::int64_t, std::int64_t)> stoppable_progress(std::string_view what,
                                                                   const StopSignals& signals) {
  return [what, &signals](std::int64_t done, std::int64_t total) {
    show_progress(what, done, total);
    if (signals.received())
      throw Error(fmt::format("{} was stopped by a signal; nothing was written", what), ExitCode::failure);
  };
}

TimedProgress::TimedProgress(const StopSignals& signals, bool is_shown)
    : signals_(signals), is_shown_(is_shown), begin_(steady_seconds()) {}

void TimedProgress::operator()(std::int64_t done, std::int64_t total) {
  if (signals_.received())
    throw Error("stopped by a signal; nothing was written", ExitCode::stopped_by_signal);
  if (!is_shown_) return;
  const std::int64_t tenth = 10 * done / total;
  if (!on_terminal() && tenth == tenth_) return;
  tenth_ = tenth;
  const double left =
      (steady_seconds() - begin_) / static_cast<double>(done) * static_cast<double>(total - done);
  const std::string line = fmt::format("pass {} of {}, {} left", done, total, format_duration(left));
  if (on_terminal())
    overwrite_line(done < total ? line : "");
  else
    write_to_stderr(line + "\n");
}

}  // namespace tetrad::app
