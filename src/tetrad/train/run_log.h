// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run tells people: messages and lines of progress on a display, and all of it in log.txt.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tetrad/core/display.h"

namespace tetrad {

class RunLog {
 public:
  /// Appends to a file.
  RunLog(const std::filesystem::path& file, Display& display);
  /// Of a rank that leaves the telling to the first: no file, and quiet.
  explicit RunLog(Display& display) : display_(display), quiet_(true) {}

  /// In front of every line for people, not in the file: which of several runs it is about, and how it stands
  /// when the line is written.
  void set_prefix(std::function<std::string()> prefix) { prefix_ = std::move(prefix); }

  /// `quiet` leaves only the file.
  void set_quiet(bool quiet) { quiet_ = quiet; }

  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    write(fmt::format(format, std::forward<Args>(args)...));
  }

  void progress(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& line);
  /// A disk that is full costs the line, not the run; the display is told, once each time it fills up.
  void to_file(const std::string& line);

  std::unique_ptr<std::FILE, Close> file_;
  Display& display_;
  std::function<std::string()> prefix_ = [] { return std::string(); };
  bool quiet_ = false;
  bool file_fails_ = false;
};

/// Seconds on a clock that only goes forward.
double steady_seconds();

/// "1:02:03", for people.
std::string format_duration(double seconds);

}  // namespace tetrad
