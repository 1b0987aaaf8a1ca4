// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace tetrad::app {
namespace {

class Terminal final : public Display {
 public:
  void say(const std::string& line) override {
    if (std::exchange(in_progress_line_, false)) fmt::print(stderr, "\n");
    fmt::print(stderr, "{}\n", line);
  }

  void progress(const std::string& line) override {
    if (isatty(STDERR_FILENO) == 0) {
      fmt::print(stderr, "{}\n", line);
      return;
    }
    fmt::print(stderr, "\r\x1b[K{}", line);
    std::fflush(stderr);
    in_progress_line_ = true;
  }

 private:
  bool in_progress_line_ = false;
};

}  // namespace

Display& terminal() {
  static Terminal terminal;
  return terminal;
}

}  // namespace tetrad::app
