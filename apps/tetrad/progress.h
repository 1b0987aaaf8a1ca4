#pragma once

#include <cstdint>
#include <string_view>

namespace tetrad::app {

/// One line on the terminal that overwrites itself and goes when `done` reaches `total`; nothing in a log.
void show_progress(std::string_view what, std::int64_t done, std::int64_t total);

}  // namespace tetrad::app
