#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tetrad::app {

void show_progress(std::string_view what, std::int64_t done, std::int64_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  const double percent = total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0;
  fmt::print(stderr, "\r\033[K{} {:.0f} %", what, percent);
  if (done >= total) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace tetrad::app
