// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/deviation.h"

#include "tetrad/backend/cpu/pieces.h"
#include "tetrad/backend/cpu/sums.h"

namespace tetrad::cpu {
namespace {

/// `reference(i)` is an element of the piece.
template <typename Reference>
DeviationSums deviations_of(const DeviationTensor& tensor, const Piece& piece, const Reference& reference) {
  const float* value = tensor.value + piece.first;
  const std::int64_t count = piece.last - piece.first;
  const auto deviation = [&](std::int64_t i) { return value[i] - reference(i); };
  if (tensor.sum != nullptr) {
    float* sum = tensor.sum + piece.first;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) sum[i] += deviation(i);
  }
  const auto products = [&](const auto& a, const auto& b) {
    return sum_in_lanes<double>(count, [&](std::int64_t i, double sum) {
      return sum + static_cast<double>(a(i)) * static_cast<double>(b(i));
    });
  };
  return {products(reference, reference), products(reference, deviation), products(deviation, deviation)};
}

}  // namespace

std::vector<DeviationSums> deviations(Threads& threads, std::span<const DeviationTensor> tensors) {
  const std::vector<Piece> pieces = pieces_of(tensors);
  std::vector<DeviationSums> parts(pieces.size());
  threads.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t index) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    const DeviationTensor& tensor = tensors[piece.tensor];
    const float* reference = tensor.reference == nullptr ? nullptr : tensor.reference + piece.first;
    parts[static_cast<std::size_t>(index)] =
        reference == nullptr ? deviations_of(tensor, piece, [](std::int64_t) { return 0.0f; })
                             : deviations_of(tensor, piece, [&](std::int64_t i) { return reference[i]; });
  });
  std::vector<DeviationSums> sums(tensors.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) sums[pieces[i].tensor].add(parts[i]);
  return sums;
}

}  // namespace tetrad::cpu
