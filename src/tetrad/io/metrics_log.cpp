// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {

/// What a line is about.
struct MetricsLog::Line {
  std::int64_t step = 0;
  std::string kind;  //!< empty: it says none

  /// Nothing if the line is damaged.
  static std::optional<Line> parse(std::string_view line);
};

std::optional<MetricsLog::Line> MetricsLog::Line::parse(std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer()) return std::nullopt;
  if (step->is_number_unsigned() &&
      step->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return std::nullopt;
  const auto kind = object.find("kind");
  return Line{step->get<std::int64_t>(),
              kind != object.end() && kind->is_string() ? kind->get<std::string>() : std::string()};
}

MetricsLog::MetricsLog(std::filesystem::path path, std::int64_t last_step) : path_(std::move(path)) {
  open();
  cut_after(last_step);
}

void MetricsLog::open() {
  // O_NONBLOCK: opening a pipe that nobody reads must not hang.
  file_ = FileDescriptor(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (!file_.is_open())
    fail_errno(fmt::format("cannot open the log {:?}; check its folder and permissions", path_.native()));
}

void MetricsLog::append(std::string_view json) {
  if (json.find('\n') != std::string_view::npos)
    throw Error(
        fmt::format("a line for {:?} holds a line break; this is a bug of the caller", path_.native()),
        ExitCode::failure);
  struct stat before {};
  if (::fstat(file_.get(), &before) != 0) fail_errno(fmt::format("cannot examine {:?}", path_.native()));
  std::string line(json);
  line += '\n';
  ssize_t written = -1;
  if (!failpoint_fails("metrics.write")) {
    do {
      written = ::write(file_.get(), line.data(), line.size());
    } while (written < 0 && errno == EINTR);
  }
  if (written == static_cast<ssize_t>(line.size())) return;

  int code = written < 0 ? errno : ENOSPC;  // Only a full disk takes a part of a line.
  if (written > 0 && ::ftruncate(file_.get(), before.st_size) != 0) code = errno;
  errno = code;
  fail_errno(
      fmt::format("failed to write to {:?}; check the free space and health of the disk", path_.native()));
}

void MetricsLog::sync() {
  if (::fdatasync(file_.get()) != 0)
    fail_errno(fmt::format("failed to flush {:?}; check the health of the disk", path_.native()));
}

std::int64_t MetricsLog::cut_after(std::int64_t step) {
  return keep_lines([&](const Line& line) { return line.step <= step; });
}

bool MetricsLog::cut_after_checkpoint(std::int64_t step) {
  const auto is_its_line = [&](const Line& line) { return line.kind == "checkpoint" && line.step == step; };
  std::int64_t written = 0;  // it may have been written more than once
  keep_lines([&](const Line& line) {
    written += is_its_line(line) ? 1 : 0;
    return line.step <= step;
  });
  std::int64_t passed = 0;
  keep_lines([&](const Line& line) {
    const bool stays = written == 0 || passed < written || line.kind == "resume";
    passed += is_its_line(line) ? 1 : 0;
    return stays;
  });
  return written > 0;
}

/// Asks of every sound line, in order, whether it stays. Returns how many went.
template <typename Stays>
std::int64_t MetricsLog::keep_lines(const Stays& stays) {
  std::int64_t removed = 0;
  std::string kept;
  {
    const MappedFile file(path_);
    std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      const bool whole = end != std::string_view::npos;
      const std::optional<Line> parsed = whole ? Line::parse(line) : std::nullopt;
      if (parsed && stays(*parsed)) {
        kept.append(line).append(1, '\n');
      } else {
        ++removed;
      }
      rest.remove_prefix(whole ? end + 1 : rest.size());
    }
  }
  if (removed == 0) return 0;
  write_file_atomically(path_, kept);
  open();  // The old descriptor is of the file that was replaced.
  return removed;
}

}  // namespace tetrad
