// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_log.h"

#include <fmt/chrono.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <system_error>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {

RunLog::RunLog(const std::filesystem::path& file, Display& display)
    : file_(std::fopen(file.c_str(), "a")), display_(display) {
  if (!file_) fail_errno("cannot write " + file.string(), ExitCode::bad_input);
}

void RunLog::to_file(const std::string& line) {
  if (!file_) return;
  const std::string text = fmt::format("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::gmtime(std::time(nullptr)), line);
  std::clearerr(file_.get());
  std::fwrite(text.data(), 1, text.size(), file_.get());
  const bool fails = failpoint_fails("log.write") || std::fflush(file_.get()) != 0;
  const int code = errno;
  if (fails && !file_fails_)
    display_.say(fmt::format("log.txt cannot be written ({}): the run goes on without it",
                             std::generic_category().message(code)));
  file_fails_ = fails;
}

void RunLog::write(const std::string& line) {
  to_file(line);
  if (!quiet_) display_.say(prefix_() + line);
}

void RunLog::progress(const std::string& line) {
  to_file(line);
  if (!quiet_) display_.progress(prefix_() + line);
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_duration(double seconds) {
  const long whole = std::lround(std::fmax(seconds, 0.0));
  const long hours = whole / 3600;
  const long minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace tetrad
