// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "tetrad/train/signals.h"

namespace tetrad::app {

/// One line on the terminal that overwrites itself and goes when `done` reaches `total`; nothing in a log.
void show_progress(std::string_view what, std::int64_t done, std::int64_t total);

/// The same for work that a signal may end: it throws Error (failure) then, so that temporary files go.
/// `what` and `signals` must outlive it.
std::function<void(std::int64_t, std::int64_t)> stoppable_progress(std::string_view what,
                                                                   const StopSignals& signals);

/// For work of minutes: how far it is and how long it will take, on a terminal as above, elsewhere a line for
/// every tenth. A signal ends it: it throws Error (stopped by a signal). `is_shown`: false on ranks that
/// leave the telling to the first.
class TimedProgress {
 public:
  explicit TimedProgress(const StopSignals& signals, bool is_shown = true);
  void operator()(std::int64_t done, std::int64_t total);

 private:
  const StopSignals& signals_;
  bool is_shown_;
  double begin_;  //!< on the steady clock
  std::int64_t tenth_ = -1;
};

}  // namespace tetrad::app
