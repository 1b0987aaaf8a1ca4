// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/rope.h"

#include <cmath>
#include <vector>

#include "tetrad/backend/cpu/element.h"

namespace tetrad::cpu {
namespace {

/// cos and sin of every angle: [sequence, head_dim / 2] each.
struct Rotations {
  std::vector<float> cosine, sine;

  Rotations(Threads& threads, const Rope& op) : cosine(size(op)), sine(size(op)) {
    const std::int64_t half = op.head_dim / 2;
    parallel_ranges(threads, op.sequence, rows_per_piece(half), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t)
        for (std::int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(op.first_position + t) * op.frequencies[i];
          const auto at = static_cast<std::size_t>(t * half + i);
          cosine[at] = std::cos(angle);
          sine[at] = op.inverse ? -std::sin(angle) : std::sin(angle);
        }
    });
  }

 private:
  static std::size_t size(const Rope& op) { return static_cast<std::size_t>(op.sequence * op.head_dim / 2); }
};

}  // namespace

void rope(Threads& threads, const Rope& op) {
  check(op);
  const Rotations rotations(threads, op);
  const std::int64_t half = op.head_dim / 2;
  with_element(op.x.dtype, "rope", [&]<typename T>(T) {
    parallel_ranges(
        threads, op.x.rows, rows_per_piece(op.x.cols), [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t row = first; row < last; ++row) {
            const std::int64_t start = op.document_starts == nullptr ? 0 : op.document_starts[row];
            const std::int64_t position = row % op.sequence - start;
            const float* cosine = rotations.cosine.data() + position * half;
            const float* sine = rotations.sine.data() + position * half;
            for (std::int64_t head = 0; head < op.x.cols; head += op.head_dim) {
              T* left = row_of<T>(op.x, row) + head;
              T* right = left + half;
#pragma omp simd
              for (std::int64_t i = 0; i < half; ++i) {
                const float l = load(left[i]);
                const float r = load(right[i]);
                store(left[i], l * cosine[i] - r * sine[i]);
                store(right[i], r * cosine[i] + l * sine[i]);
              }
            }
          }
        });
  });
}

}  // namespace tetrad::cpu
