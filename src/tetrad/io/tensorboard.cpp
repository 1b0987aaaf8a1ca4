// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <span>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/crc32c.h"

namespace tetrad {
namespace {

// Protocol buffers, as much as an event needs: a field is a varint of (number << 3 | wire type), then its
// value.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <typename T>
void put_fixed(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, field << 3 | static_cast<unsigned>(wire));
}

void put_bytes(std::string& out, unsigned field, std::string_view value) {
  put_key(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

/// Event.wall_time and Event.step; another field of the event may follow.
std::string event_at(std::int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(event, 1, Wire::fixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(now.count()));
  put_key(event, 2, Wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, std::int64_t first_step) {
  static std::atomic<unsigned> counter = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  do {
    path_ = folder /
            fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host_name(), ::getpid(), counter++);
    file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  } while (!file_.is_open() && errno == EEXIST);
  if (!file_.is_open())
    fail_errno(fmt::format("cannot create {:?}; check its folder and permissions", path_.native()));

  std::string version = event_at(0);
  put_bytes(version, 3, "brain.Event:2");
  record(version);

  std::string status;  // SessionLog.status = START: from here on, the steps of earlier files are void.
  put_key(status, 1, Wire::varint);
  put_varint(status, 1);
  std::string start = event_at(first_step);
  put_bytes(start, 7, status);
  record(start);
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    // JSON lines are the record; this is a picture of it.
  }
}

void TensorBoardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  std::string summary_value;
  put_bytes(summary_value, 1, tag);
  put_key(summary_value, 2, Wire::fixed32);
  put_fixed(summary_value, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  record_value(step, summary_value);
}

void TensorBoardWriter::text(std::string_view tag, std::int64_t step, std::string_view text) {
  std::string plugin;
  put_bytes(plugin, 1, "text");
  std::string metadata;
  put_bytes(metadata, 1, plugin);
  constexpr std::uint64_t kString = 7;  // DataType.DT_STRING
  std::string tensor;                   // a scalar: of no dimension
  put_key(tensor, 1, Wire::varint);
  put_varint(tensor, kString);
  put_bytes(tensor, 2, "");
  put_bytes(tensor, 8, text);
  std::string summary_value;
  put_bytes(summary_value, 1, tag);
  put_bytes(summary_value, 8, tensor);
  put_bytes(summary_value, 9, metadata);
  record_value(step, summary_value);
}

void TensorBoardWriter::record_value(std::int64_t step, std::string_view summary_value) {
  std::string summary;
  put_bytes(summary, 1, summary_value);
  std::string event = event_at(step);
  put_bytes(event, 5, summary);
  record(event);
}

void TensorBoardWriter::record(std::string_view event) {
  std::string length;
  put_fixed(length, std::uint64_t{event.size()});
  pending_ += length;
  put_fixed(pending_, masked_crc(length));
  pending_ += event;
  put_fixed(pending_, masked_crc(event));
  constexpr std::size_t kEnough = std::size_t{1} << 16;
  if (pending_.size() >= kEnough) flush();
}

void TensorBoardWriter::flush() {
  while (!pending_.empty()) {
    ssize_t written = -1;
    if (!failpoint_fails("events.write")) written = ::write(file_.get(), pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0)
      fail_errno(fmt::format("failed to write to {:?}; check the free space and health of the disk",
                             path_.native()));
    pending_.erase(0, static_cast<std::size_t>(written));
  }
}

}  // namespace tetrad
