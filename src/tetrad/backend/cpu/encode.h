// SPDX-License-Identifier: Apache-2.0
#pragma once
// Encoding one chunk of a tile: 16 elements of 16 runs, cast, measured and packed.

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tetrad/backend/codec.h"
#include "tetrad/backend/cpu/lane_random.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/tile.h"

namespace tetrad::cpu {

/// The scales of one block in every lane.
template <typename Codec>
struct LaneScales {
  alignas(64) typename Codec::Word stored[kLanes];
  alignas(64) float encode[kLanes];
  alignas(64) float value[kLanes];

  void put(int lane, const ScaleOfBlock<typename Codec::Word>& scale) {
    stored[lane] = scale.stored;
    encode[lane] = scale.encode;
    value[lane] = scale.value;
  }
};

/// What encoding tells of many chunks that the stored codes do not.
struct LaneStats {
  std::int64_t saturated = 0;
  alignas(64) std::int32_t
      zero_scales[kLanes] = {};  //!< of blocks that are not zero; a unit has far fewer than 2^31
};

/// The codes of a chunk, packed into 32-bit words, for each lane: little-endian, so that the words of a lane,
/// one after another, are its bytes in memory.
template <typename Codec>
struct LaneCodes {
  static constexpr int kBits = Codec::kPacked ? 4 : 8;
  static constexpr int kPerWord = 32 / kBits;
  static constexpr int kWords = kChunk / kPerWord;
  alignas(64) std::uint32_t word[kWords][kLanes];
};

inline float magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

/// Encodes the chunk that starts at element `first` of each run.
template <typename Codec, bool kStochastic>
void encode_chunk(const Tile& tile, int first, const LaneScales<Codec>& scales, const LaneRandom& random,
                  StochasticBias bias, LaneCodes<Codec>& codes) {
  using Codes = LaneCodes<Codec>;
  const auto bias_bit = static_cast<std::uint32_t>(bias);
  for (int w = 0; w < Codes::kWords; ++w) {
    alignas(64) std::uint32_t word[kLanes] = {};
    TETRAD_UNROLL
    for (int j = 0; j < Codes::kPerWord; ++j) {
      const int i = w * Codes::kPerWord + j;
      for (int lane = 0; lane < kLanes; ++lane) {
        const float scaled = tile.value[first + i][lane] * scales.encode[lane];
        std::uint32_t code = 0;
        if constexpr (kStochastic) {
          // Twice byte j % 4 of its four, and the bias.
          const std::uint32_t four = random.word[w * (Codes::kPerWord / 4) + j / 4][lane];
          const std::uint32_t shifted = j % 4 == 0 ? four << 1 : four >> (8 * (j % 4) - 1);
          code = Codec::Element::encode_with_threshold(scaled, (shifted & 0x1FEu) | bias_bit);
        } else {
          code = Codec::Element::encode(scaled);
        }
        word[lane] |= code << (Codes::kBits * j);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) codes.word[w][lane] = word[lane];
  }
}

/// Values that were clipped.
template <typename Codec>
void count_saturated(const Tile& tile, int first, const LaneScales<Codec>& scales, LaneStats& stats) {
  constexpr float kClipped =
      Codec::Element::kMax * (1.0f + 0x1p-20f);  // beyond what f32 rounding of x * encode explains
  alignas(64) std::int32_t saturated[kLanes] = {};
  for (int i = first; i < first + kChunk; ++i)
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const float limit = scales.value[lane] > 0.0f ? kClipped : std::numeric_limits<float>::infinity();
      saturated[lane] += magnitude(tile.value[i][lane] * scales.encode[lane]) > limit ? 1 : 0;
    }
  for (const std::int32_t of_lane : saturated) stats.saturated += of_lane;
}

/// Stores the codes of `lanes` lanes. Lane 0's bytes begin at `out`; those of one lane are `byte_stride`
/// apart, and lanes `lane_stride`.
template <typename Codec>
void store_codes(const LaneCodes<Codec>& codes, int lanes, std::uint8_t* out, std::int64_t byte_stride,
                 std::int64_t lane_stride) {
  constexpr int kWords = LaneCodes<Codec>::kWords;
  if (byte_stride == 1 && lane_stride == kWords * 4 &&
      lanes == kLanes) {  // the common case: one contiguous piece
    std::uint32_t bytes[kLanes][kWords];
    for (int lane = 0; lane < kLanes; ++lane)
      for (int w = 0; w < kWords; ++w) bytes[lane][w] = codes.word[w][lane];
    std::memcpy(out, bytes, sizeof(bytes));
    return;
  }
  if (byte_stride == 1) {
    for (int lane = 0; lane < lanes; ++lane) {
      std::uint32_t bytes[kWords];
      for (int w = 0; w < kWords; ++w) bytes[w] = codes.word[w][lane];
      std::memcpy(out + lane * lane_stride, bytes, sizeof(bytes));
    }
    return;
  }
  for (int b = 0; b < kWords * 4; ++b) {
    std::uint8_t byte[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
      byte[lane] = static_cast<std::uint8_t>(codes.word[b / 4][lane] >> (8 * (b % 4)));
    std::uint8_t* row = out + b * byte_stride;
    if (lane_stride == 1)
      std::memcpy(row, byte, static_cast<std::size_t>(lanes));
    else
      for (int lane = 0; lane < lanes; ++lane) row[lane * lane_stride] = byte[lane];
  }
}

}  // namespace tetrad::cpu
