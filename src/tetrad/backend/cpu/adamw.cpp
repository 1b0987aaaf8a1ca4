// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/adamw.h"

#include <algorithm>

#include "tetrad/backend/cpu/element.h"
#include "tetrad/backend/cpu/pieces.h"
#include "tetrad/backend/cpu/sums.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad::cpu {
namespace {

/// Elements [first, last) of a tensor with its moments in f32.
void update_f32(const AdamWTensor& tensor, const AdamWRates& rates, std::int64_t first, std::int64_t last) {
  auto* const first_moment = static_cast<float*>(tensor.first_moment);
  auto* const second_moment = static_cast<float*>(tensor.second_moment);
  const float decay = tensor.decay ? rates.weight_decay : 0.0f;
#pragma omp simd
  for (std::int64_t i = first; i < last; ++i)
    adamw_update(rates, decay, tensor.gradient[i], tensor.weight[i], first_moment[i], second_moment[i]);
}

/// The same with its moments in BF16; `first` is a multiple of a group.
void update_bf16(const AdamWTensor& tensor, const AdamWRates& rates, const MomentRounding& rounding,
                 std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kElements = 256;  // at a time, so that random bits are drawn in SIMD lanes too
  constexpr std::int64_t kGroup = MomentRounding::kGroup;
  auto* const first_moment = static_cast<Bf16*>(tensor.first_moment);
  auto* const second_moment = static_cast<Bf16*>(tensor.second_moment);
  const float decay = tensor.decay ? rates.weight_decay : 0.0f;
  for (; first < last; first += kElements) {
    alignas(64) std::uint32_t random[kElements];
#pragma omp simd
    for (std::int64_t group = 0; group < kElements / kGroup; ++group) {
      const PhiloxWords words = rounding.words(tensor.first + first + group * kGroup);
      for (std::size_t word = 0; word < words.size(); ++word)
        random[group * kGroup + static_cast<std::int64_t>(word)] = words[word];
    }
    const std::int64_t count = std::min(kElements, last - first);
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t i = first + k;
      float m = first_moment[i].to_f32();
      float v = second_moment[i].to_f32();
      adamw_update(rates, decay, tensor.gradient[i], tensor.weight[i], m, v);
      first_moment[i] = MomentRounding::round_first(m, random[k]);
      second_moment[i] = MomentRounding::round_second(v, random[k]);
    }
  }
}

}  // namespace

void adamw(Threads& threads, const AdamWStep& op) {
  const AdamWRates rates = rates_of(op);
  const std::vector<Piece> pieces = pieces_of(op.tensors);
  threads.parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t index) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    const AdamWTensor& tensor = op.tensors[piece.tensor];
    if (tensor.moments_on_host && failpoint_fails("offload.copy"))
      fail_errno("moments on the host cannot be copied");
    if (tensor.moments == DType::f32)
      update_f32(tensor, rates, piece.first, piece.last);
    else
      update_bf16(tensor, rates, {op.seed, op.step, tensor.parameter}, piece.first, piece.last);
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
