// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/adamw.h"

#include <cmath>

#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/pieces.h"
#include "tetrad/backend/cpu/sums.h"

namespace tetrad::cpu {
void adamw(Threads& threads, const AdamWStep& op) {
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 /
                              (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(op.step))));
  };
  const float first_correction = correction(op.beta1);
  const float second_correction = correction(op.beta2);
  const std::vector<Piece> pieces = pieces_of(op.tensors);
  threads.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t index) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    const AdamWTensor& tensor = op.tensors[piece.tensor];
    const float decay = tensor.decay ? op.weight_decay : 0.0f;
#pragma omp simd
    for (std::int64_t i = piece.first; i < piece.last; ++i) {
      const float gradient = tensor.gradient[i] * op.gradient_scale;
      const float m = op.beta1 * tensor.first_moment[i] + (1.0f - op.beta1) * gradient;
      const float v = op.beta2 * tensor.second_moment[i] + (1.0f - op.beta2) * gradient * gradient;
      const float direction = m * first_correction / (std::sqrt(v * second_correction) + op.epsilon);
      tensor.first_moment[i] = m;
      tensor.second_moment[i] = v;
      tensor.weight[i] -= op.learning_rate * (direction + decay * tensor.weight[i]);
    }
  });
}

std::vector<double> squared_norms(Threads& threads, std::span<const AdamWTensor> tensors) {
  const std::vector<Piece> pieces = pieces_of(tensors);
  std::vector<double> sums(pieces.size());
  threads.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t index) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    const float* gradient = tensors[piece.tensor].gradient;
    sums[static_cast<std::size_t>(index)] =
        sum_in_lanes<double>(piece.last - piece.first, [&](std::int64_t i, double sum) {
          const auto x = static_cast<double>(gradient[piece.first + i]);
          return sum + x * x;
        });
  });
  std::vector<double> norms(tensors.size(), 0.0);
  for (std::size_t i = 0; i < pieces.size(); ++i) norms[pieces[i].tensor] += sums[i];
  return norms;
}

}  // namespace tetrad::cpu
