// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one exception type. A message says what is wrong, where, and what to do about it.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tetrad {

/// Exit codes of the `tetrad` program; docs/commands.md lists them for users.
enum class ExitCode : int {
  ok = 0,
  failure = 1,            //!< anything not listed below: a full disk, a broken device, a bug
  bad_input = 2,          //!< bad usage, configuration or input
  diverged = 3,           //!< training stopped because it diverged
  no_checkpoint = 4,      //!< no usable checkpoint
  stopped_by_signal = 5,  //!< after a checkpoint was written
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode exit_code = ExitCode::bad_input)
      : std::runtime_error(message), exit_code_(exit_code) {}

  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

/// Throws Error (bad input) with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error for a failed system call: "<what>: <strerror(errno)>".
[[noreturn]] void fail_errno(const std::string& what, ExitCode exit_code = ExitCode::failure);

}  // namespace tetrad

/// TETRAD_CHECK(condition, "what is wrong with {}: what to do", name). Stays on in every build type.
#define TETRAD_CHECK(condition, ...)               \
  do {                                             \
    if (!(condition)) ::tetrad::fail(__VA_ARGS__); \
  } while (false)
