// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace tetrad {
namespace {

constexpr std::array kStops = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR2};
constexpr std::array kIgnored = {SIGPIPE, SIGXFSZ};

// Lock-free and of static storage: all that a signal handler may touch.
std::atomic<int> g_received = 0;
std::atomic<bool> g_checkpoint = false;
std::atomic<bool> g_answers = true;
std::atomic<long> g_seconds = -1;
std::array<struct sigaction, kStops.size() + kIgnored.size() + 1> g_before;

/// Text for stderr, put together with nothing but what a signal handler may call.
class Answer {
 public:
  void add(const char* text) {
    for (; *text != '\0' && size_ < text_.size(); ++text) text_[size_++] = *text;
  }
  void add(long number) {
    char digits[24];
    std::size_t at = sizeof(digits);
    digits[--at] = '\0';
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0 && at > 0);
    add(digits + at);
  }
  void write() const {
    if (::write(STDERR_FILENO, text_.data(), size_) < 0) return;  // nobody is there to read it
  }

 private:
  std::array<char, 160> text_{};
  std::size_t size_ = 0;
};

void on_stop(int signal) {
  constexpr int kShellOffset = 128;  // what a shell reports for a process that a signal ended
  const int error = errno;
  if (g_received.fetch_add(1) > 0) _exit(kShellOffset + signal);
  if (!g_answers) return;
  Answer answer;
  answer.add("\nstopping");
  if (const long seconds = g_seconds.load(); seconds >= 0) {
    answer.add(" and saving after this microbatch, in about ");
    answer.add(seconds);
    answer.add(" s");
  }
  answer.add("; once more ends it at once, without saving\n");
  answer.write();
  errno = error;
}

void on_checkpoint(int) { g_checkpoint.store(true); }

}  // namespace

StopSignals::StopSignals(bool answers) {
  g_received = 0;
  g_answers = answers;
  g_checkpoint = false;
  g_seconds = -1;
  std::size_t i = 0;
  const auto install = [&](int signal, void (*handler)(int)) {
    struct sigaction& before = g_before[i++];
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) return;
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  };
  for (const int signal : kStops) install(signal, on_stop);
  for (const int signal : kIgnored) install(signal, SIG_IGN);
  install(SIGUSR1, on_checkpoint);
}

StopSignals::~StopSignals() {
  std::size_t i = 0;
  for (const int signal : kStops) sigaction(signal, &g_before[i++], nullptr);
  for (const int signal : kIgnored) sigaction(signal, &g_before[i++], nullptr);
  sigaction(SIGUSR1, &g_before[i++], nullptr);
}

bool StopSignals::received() const { return g_received > 0; }

bool StopSignals::take_checkpoint_request() const { return g_checkpoint.exchange(false); }

void StopSignals::expect_seconds(double seconds) const {
  g_seconds = seconds < 0 ? -1 : std::lround(seconds);
}

}  // namespace tetrad
