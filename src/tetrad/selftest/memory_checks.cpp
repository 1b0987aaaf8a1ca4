// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/checks.h"

#include <fmt/format.h>

namespace tetrad::selftest {
namespace {

constexpr std::int64_t kCount = 5000;  //!< no multiple of what copies move at a time

std::span<std::byte> bytes_of(const Matrix& matrix) {
  return {reinterpret_cast<std::byte*>(matrix.f32()), kCount * sizeof(float)};
}

void upload_and_read(Stage& stage) { stage.changed("memory", stage.draw_f32(kCount), kSameBytes); }

void copy(Stage& stage) {
  const Matrix& from = stage.draw_f32(kCount);
  stage.backend().copy(bytes_of(from), bytes_of(stage.result_f32("to", kCount, kSameBytes)));
}

/// To the host and back, one of the two ways in a lane.
void copy_in_lane(Stage& stage) {
  Backend& backend = stage.backend();
  for (std::size_t lane = 0; lane < kCopyLanes; ++lane) {
    const std::span<std::byte> from = bytes_of(stage.draw_f32(kCount));
    const std::span<std::byte> to =
        bytes_of(stage.result_f32(fmt::format("to {}", lane), kCount, kSameBytes));
    Buffer memory = backend.allocate_on_host(from.size());
    const std::span<std::byte> host = memory.span<std::byte>();
    const bool leaves = lane % 2 == 0;
    if (!leaves) backend.copy(from, host);
    backend.copy_in_lane(lane, leaves ? from : host, leaves ? host : to);
    backend.join_lane(lane);
    backend.set_to_zero(from);
    if (leaves) backend.copy(host, to);
    backend.synchronize();  // before the memory of the host goes
  }
}

void set_to_zero(Stage& stage) {
  // All but the ends, which must stay.
  stage.backend().set_to_zero(
      bytes_of(stage.result_f32("memory", kCount, kSameBytes)).subspan(4, 4 * kCount - 12));
}

/// What a device records and replays, others do at once.
void record(Stage& stage) {
  const Add op{stage.draw(16, 64).view(), stage.draw(16, 64).view(),
               stage.result("sum", 16, 64, kSameBytes).out()};
  Backend& backend = stage.backend();
  if (const auto replay = backend.record([&] { backend.add(op); }))
    replay();
  else
    backend.add(op);
}

}  // namespace

std::vector<Check> memory_checks() {
  return {{"upload", "", {}, upload_and_read, true},
          {"readable", "", {}, upload_and_read, true},
          {"copy", "", {}, copy, true},
          {"copy_in_lane", "", {}, copy_in_lane, true},
          {"set_to_zero", "", {}, set_to_zero, true},
          {"record", "a sum", {}, record, true}};
}

}  // namespace tetrad::selftest
