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

}  // namespace tetrad::app
