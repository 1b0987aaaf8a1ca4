// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/checks.h"

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
          {"set_to_zero", "", {}, set_to_zero, true},
          {"record", "a sum", {}, record, true}};
}

}  // namespace tetrad::selftest
