// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace tetrad {
namespace {

// Lock-free and of static storage: all that a signal handler may touch.
std::atomic<int> g_received = 0;
struct sigaction g_old_interrupt;
struct sigaction g_old_terminate;

void on_signal(int signal) {
  constexpr int kShellOffset = 128;  // what a shell reports for a process that a signal ended
  if (g_received.fetch_add(1) > 0) _exit(kShellOffset + signal);
}

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &g_old_interrupt);
  sigaction(SIGTERM, &action, &g_old_terminate);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &g_old_interrupt, nullptr);
  sigaction(SIGTERM, &g_old_terminate, nullptr);
}

bool StopSignals::received() const { return g_received > 0; }

}  // namespace tetrad
