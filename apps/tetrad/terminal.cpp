// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tetrad::app {
namespace {

class Terminal final : public Display {
 public:
  void say(const std::string& line) override {
    if (is_silent_) return;
    write_to_stderr(fmt::format("{}{}\n", std::exchange(in_progress_line_, false) ? "\n" : "", line));
  }

  void progress(const std::string& line) override {
    if (is_silent_) return;
    if (isatty(STDERR_FILENO) == 0) {
      write_to_stderr(line + "\n");
      return;
    }
    write_to_stderr("\r\x1b[K" + line);
    in_progress_line_ = true;
  }

  void silence() { is_silent_ = true; }

 private:
  bool in_progress_line_ = false;
  bool is_silent_ = false;
};

Terminal& the_terminal() {
  static Terminal terminal;
  return terminal;
}

}  // namespace

Display& terminal() { return the_terminal(); }

void silence_terminal() { the_terminal().silence(); }

void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY));
}

}  // namespace tetrad::app
