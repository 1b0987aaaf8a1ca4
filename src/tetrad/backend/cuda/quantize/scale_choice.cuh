// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 scales that are chosen by the errors which candidates leave: 4/6 scaling and scale search.

#include "tetrad/backend/cuda/common/words.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cuda {

/// What a scale loses of 16 elements, one after another.
TETRAD_HD inline float squared_errors(const float* v, std::uint32_t byte, const nvfp4::TensorScale& tensor) {
  const float encode = nvfp4::scale_of_byte(byte, tensor).encode;
  const float value = E4m3::decode(byte);
  float sum = 0.0f;
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < nvfp4::kBlock; ++i) sum += nvfp4::squared_error(v[i], encode, value, tensor);
  return sum;
}

/// The first of the candidates that lose least.
template <typename ErrorOf>
TETRAD_HD inline std::uint32_t least_candidate(const nvfp4::Candidates& candidates, Scaling scaling,
                                               const ErrorOf& error_of) {
  std::uint32_t best = candidates.byte(0);
  float least = error_of(0);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (int i = 1; i < nvfp4::candidates_of(scaling); ++i) {
    const float error = error_of(i);
    best = error < least ? candidates.byte(i) : best;
    least = error < least ? error : least;
  }
  return best;
}

/// The scale of a block of 16 elements in registers.
TETRAD_HD inline nvfp4::BlockScale chosen_scale(const float (&v)[nvfp4::kBlock], float amax,
                                                const nvfp4::TensorScale& tensor, Scaling scaling) {
  const nvfp4::Candidates candidates = nvfp4::candidates_for(amax, tensor);
  const std::uint32_t byte = least_candidate(
      candidates, scaling, [&](int i) { return squared_errors(v, candidates.byte(i), tensor); });
  return nvfp4::scale_of_byte(byte, tensor);
}

}  // namespace tetrad::cuda
