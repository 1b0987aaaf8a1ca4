// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs the built program as a user does.

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/files.h"

namespace tetrad::testing {

struct Outcome {
  int exit_code = -1;  //!< -1: killed by a signal
  std::string out;
  std::string err;
  std::int64_t peak_memory = 0;  //!< bytes that it had in memory at once
};

/// The program, running. TETRAD_PROGRAM is defined by the build.
class RunningTetrad {
 public:
  /// `environment` is added to our own, as NAME=value; `input` is its standard input, unless it is empty;
  /// `launcher` stands before the program, with the path of its own first.
  explicit RunningTetrad(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {}, const std::string& input = {},
                         const std::vector<std::string>& launcher = {})
      : out_(folder_.file("out")), err_(folder_.file("err")) {
    std::vector<std::string> words = launcher;
    words.emplace_back(TETRAD_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables = environment;
    for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string in = folder_.file("in");
    if (!input.empty()) {
      write_file(in, input);
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
    }
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_.c_str(), O_WRONLY | O_CREAT, 0600);
    // Tests that run in the background of a shell or under nohup ignore these, and their children would too.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t ignored;
    sigemptyset(&ignored);
    for (const int signal : {SIGINT, SIGHUP}) sigaddset(&ignored, signal);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawn(&child_, words.front().c_str(), &actions, &attributes,
                                  pointers(words).data(), pointers(variables).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + words.front());
  }
  RunningTetrad(const RunningTetrad&) = delete;
  RunningTetrad& operator=(const RunningTetrad&) = delete;
  ~RunningTetrad() {
    if (child_ > 0) kill(child_, SIGKILL), wait();
  }

  void send(int signal) const { kill(child_, signal); }
  /// The most memory that it has had in bytes, as the system counts it.
  std::size_t peak_memory() const {
    const std::string status = read_file("/proc/" + std::to_string(child_) + "/status");
    constexpr const char* kPeak = "VmHWM:";
    return std::stoul(status.substr(status.find(kPeak) + std::string(kPeak).size())) * 1024;
  }
  bool finished() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
  }
  /// What it has printed so far.
  std::string out() const { return read_file(out_); }
  std::string err() const { return read_file(err_); }
  Outcome wait() {
    int status = 0;
    rusage usage = {};
    wait4(child_, &status, 0, &usage);
    child_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out_), read_file(err_),
            usage.ru_maxrss * 1024};
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
  }

  TemporaryFolder folder_;
  std::string out_, err_;
  pid_t child_ = 0;
};

inline Outcome run_tetrad(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment = {}, const std::string& input = {}) {
  return RunningTetrad(arguments, environment, input).wait();
}

}  // namespace tetrad::testing
