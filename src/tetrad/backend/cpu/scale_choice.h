// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 scales that are chosen by the errors which candidates leave: 4/6 scaling and scale search. One block
// in every lane of a tile. (Not inlined: within the encoder's loop compilers vectorise them less well.)

#include <cstdint>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/tile.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad::cpu {

/// The candidates of each lane's block.
struct LaneCandidates {
  alignas(64) std::uint32_t six[kLanes];
  alignas(64) std::uint32_t four[kLanes];

  LaneCandidates(const float (&amax)[kLanes], const nvfp4::TensorScale& tensor) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const nvfp4::Candidates candidates = nvfp4::candidates_for(amax[lane], tensor);
      six[lane] = candidates.six;
      four[lane] = candidates.four;
    }
  }
};

/// One of them.
struct LaneCandidate {
  alignas(64) std::uint32_t byte[kLanes];
  alignas(64) float encode[kLanes];
  alignas(64) float value[kLanes];

  [[gnu::noinline]] LaneCandidate(const LaneCandidates& candidates, const nvfp4::TensorScale& tensor,
                                  int index) {
    for (int lane = 0; lane < kLanes; ++lane) {
      byte[lane] = nvfp4::Candidates{candidates.six[lane], candidates.four[lane]}.byte(index);
      encode[lane] = nvfp4::scale_of_byte(byte[lane], tensor).encode;
      value[lane] = E4m3::decode(byte[lane]);
    }
  }

  /// What each lane's chunk at `first` loses, element after element.
  F32x16 squared_errors(const Tile& tile, int first, const nvfp4::TensorScale& tensor) const {
    F32x16 sum = {};
    TETRAD_UNROLL
    for (int i = first; i < first + kChunk; ++i) {
      alignas(64) float error[kLanes];
      for (int lane = 0; lane < kLanes; ++lane)
        error[lane] = nvfp4::squared_error(tile.value[i][lane], encode[lane], value[lane], tensor);
      sum += load_lanes(error);
    }
    return sum;
  }
};

/// Candidates in order: one that is better than all before takes their place.
struct LaneChoice {
  alignas(64) std::uint32_t byte[kLanes];
  alignas(64) float least[kLanes];

  explicit LaneChoice(const LaneCandidate& first, const F32x16& errors) {
    store_lanes(errors, least);
    for (int lane = 0; lane < kLanes; ++lane) byte[lane] = first.byte[lane];
  }
  void consider(const LaneCandidate& candidate, const F32x16& errors) {
    alignas(64) float error[kLanes];
    store_lanes(errors, error);
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool better = error[lane] < least[lane];
      least[lane] = better ? error[lane] : least[lane];
      byte[lane] = better ? candidate.byte[lane] : byte[lane];
    }
  }
};

/// The scales of blocks that lie in one row: the chunk at `first`.
[[gnu::noinline]] inline LaneChoice choose_scales(const Tile& tile, int first, const float (&amax)[kLanes],
                                                  const nvfp4::TensorScale& tensor, Scaling scaling) {
  const LaneCandidates candidates(amax, tensor);
  const LaneCandidate six(candidates, tensor, 0);
  LaneChoice choice(six, six.squared_errors(tile, first, tensor));
  for (int i = 1; i < nvfp4::candidates_of(scaling); ++i) {
    const LaneCandidate candidate(candidates, tensor, i);
    choice.consider(candidate, candidate.squared_errors(tile, first, tensor));
  }
  return choice;
}

}  // namespace tetrad::cpu
