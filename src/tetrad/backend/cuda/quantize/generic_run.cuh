// SPDX-License-Identifier: Apache-2.0
#pragma once
// Quantization of any format, block shape, transform and layout, one run of a row at a time: a run is 16
// elements, or a transform where that is longer. Blocks larger than a run meet in memory (block_amax).

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tetrad/backend/codec.h"
#include "tetrad/backend/cuda/quantize/decode_group.cuh"
#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"
#include "tetrad/backend/cuda/quantize/eden.cuh"
#include "tetrad/backend/cuda/quantize/problem.h"
#include "tetrad/backend/cuda/quantize/scale_choice.cuh"

namespace tetrad::cuda {

TETRAD_HD inline std::uint32_t magnitude_bits(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
}
TETRAD_HD inline float widened(float x) { return x; }
TETRAD_HD inline float widened(Bf16 x) { return x.to_f32(); }

/// max(*place, bits). The maximum does not depend on the order in which threads come.
TETRAD_HD inline void raise(std::uint32_t* place, std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  atomicMax(place, bits);
#else
  *place = *place > bits ? *place : bits;
#endif
}

struct Place {
  std::int64_t row, col;
};

/// Items are runs; neighbouring items are neighbours in memory.
template <int kRun>
TETRAD_HD inline Place place_of_run(const QuantProblem& p, std::int64_t item) {
  if (p.is_row_major()) {
    const std::int64_t per_row = p.cols / kRun;
    return {item / per_row, item % per_row * kRun};
  }
  return {item % p.rows, item / p.rows * kRun};
}

template <int kSize, int kRun>
TETRAD_HD inline void transform_run(float (&v)[kRun], const SignMask& signs) {
  TETRAD_UNROLL_ON_DEVICE
  for (int first = 0; first < kRun; first += kSize) hadamard<kSize>(v + first, signs);
}

template <typename T, int kRun>
TETRAD_HD inline void load_run(const QuantProblem& p, const Place& at, float (&v)[kRun]) {
  const T* x = static_cast<const T*>(p.x) + at.row * p.row_stride + at.col * p.col_stride;
  if (p.wide) {
    constexpr int kPerVector = 16 / static_cast<int>(sizeof(T));
    struct alignas(16) Vector {
      T element[kPerVector];
    };
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kRun; i += kPerVector) {
      const Vector vector = *reinterpret_cast<const Vector*>(x + i);
      TETRAD_UNROLL_ON_DEVICE
      for (int j = 0; j < kPerVector; ++j) v[i + j] = widened(vector.element[j]);
    }
  } else {
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kRun; ++i) v[i] = widened(x[i * p.col_stride]);
  }
  if (p.hadamard == 0) return;
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < kRun; ++i) v[i] = round_to_bf16(v[i]);
  if constexpr (kRun > kGroup) {
    transform_run<kRun>(v, p.signs);
  } else {
    if (p.hadamard == 2) transform_run<2>(v, p.signs);
    if (p.hadamard == 4) transform_run<4>(v, p.signs);
    if (p.hadamard == 8) transform_run<8>(v, p.signs);
    if (p.hadamard == 16) transform_run<16>(v, p.signs);
  }
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < kRun; ++i) v[i] = round_to_bf16(v[i]);
}

/// First pass: the maxima of the run's blocks; returns the run's own.
template <typename T, int kRun>
TETRAD_HD inline std::uint32_t find_amax_of_run(const QuantProblem& p, std::int64_t item) {
  const Place at = place_of_run<kRun>(p, item);
  float v[kRun];
  load_run<T>(p, at, v);
  std::uint32_t largest = 0;
  TETRAD_UNROLL_ON_DEVICE
  for (int first = 0; first < kRun; first += kGroup) {
    std::uint32_t bits = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = first; i < first + kGroup; ++i)
      bits = bits > magnitude_bits(v[i]) ? bits : magnitude_bits(v[i]);
    if (!p.whole) raise(p.block_amax + p.block_of(at.row, at.col + first), bits);
    largest = largest > bits ? largest : bits;
  }
  return largest;
}

/// Chooses the scales of the blocks that a run covers: errors along each of their rows, added in ascending
/// order. Items are runs of a matrix whose rows are rows of blocks.
template <typename T, int kRun>
TETRAD_HD inline void choose_scales(const QuantProblem& p, std::int64_t item) {
  constexpr int kBlocks = kRun / kGroup;
  const std::int64_t per_row = p.cols / kRun;
  const std::int64_t first_row = item / per_row << p.block_row_shift;
  const std::int64_t col = item % per_row * kRun;
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
  nvfp4::Candidates candidates[kBlocks];
  for (int g = 0; g < kBlocks; ++g) {
    const std::int64_t block = p.block_of(first_row, col + g * kGroup);
    candidates[g] = nvfp4::candidates_for(std::bit_cast<float>(p.block_amax[block]), tensor);
  }
  float errors[kBlocks][nvfp4::kMostCandidates] = {};
  for (int r = 0; r < 1 << p.block_row_shift; ++r) {
    float v[kRun];
    load_run<T>(p, {first_row + r, col}, v);
    for (int g = 0; g < kBlocks; ++g)
      for (int i = 0; i < nvfp4::candidates_of(p.scaling); ++i)
        errors[g][i] += squared_errors(v + g * kGroup, candidates[g].byte(i), tensor);
  }
  for (int g = 0; g < kBlocks; ++g)
    p.chosen[p.block_of(first_row, col + g * kGroup)] = static_cast<std::uint8_t>(
        least_candidate(candidates[g], p.scaling, [&](int i) { return errors[g][i]; }));
}

/// MS-EDEN: the scales of the blocks of a run, which is one rotated group.
template <typename T, int kRun>
TETRAD_HD inline void correct_scales(const QuantProblem& p, std::int64_t item) {
  constexpr int kBlocks = kRun / kGroup;
  const Place at = place_of_run<kRun>(p, item);
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(p.tensor_amax(), p.scaling);
  float v[kRun];
  load_run<T>(p, at, v);
  nvfp4::Projection sums[kBlocks];
  std::uint32_t bytes[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    const auto amax = std::bit_cast<float>(p.block_amax[p.block_of(at.row, at.col + b * kGroup)]);
    const nvfp4::BlockScale scale = nvfp4::block_scale(amax, tensor);
    bytes[b] = scale.byte;
    sums[b] = projection_of_block(v + b * kGroup, scale, tensor);
  }
  for (int step = 1; step < kBlocks; step *= 2)
    for (int b = 0; b < kBlocks; b += 2 * step) sums[b] = sum_of(sums[b], sums[b + step]);
  const float correction = nvfp4::correction(sums[0]);
  for (int b = 0; b < kBlocks; ++b) {
    const std::int64_t col = at.col + b * kGroup;
    p.chosen[p.block_of(at.row, col)] = static_cast<std::uint8_t>(
        nvfp4::corrected_byte(bytes[b], correction, p.random_byte_of_block(at.row, col)));
  }
}

/// Where scales are not found from block maxima alone: for one run of each row of blocks.
template <typename T, int kRun>
TETRAD_HD inline void find_scales(const QuantProblem& p, std::int64_t item) {
  if (p.scaling == Scaling::eden)
    correct_scales<T, kRun>(p, item);
  else
    choose_scales<T, kRun>(p, item);
}

/// Sixteen codes, packed as they lie in row-major order.
template <typename Codec>
struct GroupCodes {
  static constexpr int kBits = Codec::kPacked ? 4 : 8;
  static constexpr int kPerWord = 32 / kBits;
  static constexpr int kWords = kGroup / kPerWord;
  std::uint32_t word[kWords];

  TETRAD_HD std::uint32_t code(int i) const {
    return (word[i / kPerWord] >> (kBits * (i % kPerWord))) & ((1u << kBits) - 1);
  }
  TETRAD_HD std::uint8_t byte(int i) const { return static_cast<std::uint8_t>(word[i / 4] >> (8 * (i % 4))); }
};

template <typename Codec>
TETRAD_HD inline GroupCodes<Codec> encode_group(const QuantProblem& p, const Place& at, const float* v,
                                                float encode) {
  using Codes = GroupCodes<Codec>;
  const bool stochastic = p.is_stochastic();
  PhiloxWords random = {};
  if (stochastic) random = p.random_words(at.row, at.col);
  Codes codes;
  TETRAD_UNROLL_ON_DEVICE
  for (int w = 0; w < Codes::kWords; ++w) {
    std::uint32_t word = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (int j = 0; j < Codes::kPerWord; ++j) {
      const int i = w * Codes::kPerWord + j;
      const float scaled = v[i] * encode;
      const std::uint32_t code =
          stochastic ? Codec::Element::encode_stochastic(scaled, RandomStream::byte(random, i), p.bias())
                     : Codec::Element::encode(scaled);
      word |= code << (Codes::kBits * j);
    }
    codes.word[w] = word;
  }
  return codes;
}

template <typename Codec>
TETRAD_HD inline void store_codes(const QuantProblem& p, const Place& at, const GroupCodes<Codec>& codes) {
  constexpr int kBytes = GroupCodes<Codec>::kWords * 4;
  const std::int64_t first = Codec::kPacked ? at.col / 2 : at.col;
  if (p.order == CodeOrder::row_major) {
    const std::int64_t row_bytes = Codec::kPacked ? p.cols / 2 : p.cols;
    using Words = std::conditional_t<Codec::kPacked, TwoWords, FourWords>;
    static_assert(sizeof(Words) == sizeof(codes.word));
    std::uint8_t* out = static_cast<std::uint8_t*>(p.codes) + at.row * row_bytes + first;
    Words words;
    TETRAD_UNROLL_ON_DEVICE
    for (int w = 0; w < GroupCodes<Codec>::kWords; ++w) words.word[w] = codes.word[w];
    *reinterpret_cast<Words*>(out) = words;
    return;
  }
  std::uint8_t* out = static_cast<std::uint8_t*>(p.codes) + first * p.rows + at.row;
  TETRAD_UNROLL_ON_DEVICE
  for (int b = 0; b < kBytes; ++b) out[b * p.rows] = codes.byte(b);
}

/// The values that a product reads: [rows, cols], or [cols, rows] if column-major.
template <typename Codec>
TETRAD_HD inline void store_operand(const QuantProblem& p, const Place& at, const GroupCodes<Codec>& codes,
                                    float scale) {
  float values[kGroup];
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < kGroup; ++i) values[i] = Codec::Element::decode(codes.code(i)) * scale;
  if (p.order == CodeOrder::row_major) {
    auto* out = reinterpret_cast<FourWords*>(static_cast<Bf16*>(p.codes) + at.row * p.cols + at.col);
    TETRAD_UNROLL_ON_DEVICE
    for (int half = 0; half < 2; ++half) {
      FourWords words;
      TETRAD_UNROLL_ON_DEVICE
      for (int i = 0; i < 4; ++i)
        words.word[i] = pack_bf16(values[8 * half + 2 * i], values[8 * half + 2 * i + 1]);
      out[half] = words;
    }
    return;
  }
  Bf16* out = static_cast<Bf16*>(p.codes) + at.col * p.rows + at.row;
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < kGroup; ++i) out[i * p.rows] = Bf16::from_f32(values[i]);
}

/// Each stored scale is written by the group at its block's beginning.
template <typename Codec>
TETRAD_HD inline void store_scale(const QuantProblem& p, const Place& at, typename Codec::Word stored) {
  if (p.whole || p.form == Form::operand || at.col % (std::int64_t{1} << p.block_col_shift) != 0) return;
  std::int64_t row = at.row;
  if constexpr (!Codec::kPacked) {  // once per block; the four-bit formats store it for each row
    if (row % (std::int64_t{1} << p.block_row_shift) != 0) return;
    row >>= p.block_row_shift;
  }
  const std::int64_t col = at.col >> p.block_col_shift;
  auto* scales = static_cast<typename Codec::Stored*>(p.scales);
  scales[p.order == CodeOrder::row_major ? row * p.scale_cols + col : col * p.scale_rows + row] =
      static_cast<typename Codec::Stored>(stored);
}

template <typename Codec>
TETRAD_HD inline auto scale_of(const QuantProblem& p, const Codec& codec, const Place& at) {
  if (p.whole) return codec.scale(p.tensor_amax());
  const std::int64_t block = p.block_of(at.row, at.col);
  const auto amax = std::bit_cast<float>(p.block_amax[block]);
  if constexpr (std::is_same_v<Codec, Nvfp4Codec>) {
    if (is_choice(p.scaling)) return codec.scale_of_byte(p.chosen[block]);
    if (p.scaling == Scaling::eden) return codec.corrected_scale(amax, p.chosen[block]);
  }
  return codec.scale(amax);
}

/// Second pass.
template <typename T, typename Codec, int kRun>
TETRAD_HD inline void encode_run(const QuantProblem& p, const Codec& codec, std::int64_t item) {
  const Place at = place_of_run<kRun>(p, item);
  const bool poisoned = p.is_poisoned();
  float v[kRun];
  if (!poisoned) load_run<T>(p, at, v);
  for (int first = 0; first < kRun; first += kGroup) {
    const Place group{at.row, at.col + first};
    GroupCodes<Codec> codes = {};
    typename Codec::Word stored = Codec::kPoison;
    float value = std::numeric_limits<float>::quiet_NaN();
    if (!poisoned) {
      const auto scale = scale_of(p, codec, group);
      codes = encode_group<Codec>(p, group, v + first, scale.encode);
      stored = scale.stored;
      value = scale.value;
    }
    store_scale<Codec>(p, group, stored);
    if (p.form == Form::operand)
      store_operand<Codec>(p, group, codes, value);
    else
      store_codes<Codec>(p, group, codes);
  }
}

/// What there is once per tensor; for one thread of the second pass.
template <typename Codec>
TETRAD_HD inline void store_tensor_results(const QuantProblem& p, const Codec& codec) {
  const float amax = p.tensor_amax();
  *p.amax = amax;
  if (p.whole)
    *static_cast<typename Codec::Stored*>(p.scales) =
        static_cast<typename Codec::Stored>(p.is_poisoned() ? Codec::kPoison : codec.scale(amax).stored);
}

/// What the second pass stored, to be decoded.
TETRAD_HD inline DecodeProblem stored_by(const QuantProblem& p) {
  DecodeProblem stored;
  stored.codes = static_cast<const std::uint8_t*>(p.codes);
  stored.scales = p.scales;
  stored.rows = p.rows;
  stored.cols = p.cols;
  stored.order = p.order;
  stored.form = p.form;
  if (p.whole) return stored;  // one scale everywhere
  stored.scale_row_shift = p.format == Format::fp8 ? p.block_row_shift : 0;
  stored.scale_row_stride = p.order == CodeOrder::row_major ? p.scale_cols : 1;
  stored.scale_col_stride = p.order == CodeOrder::row_major ? 1 : p.scale_rows;
  return stored;
}

/// What statistics need of a run: its elements, decoded from what is stored, if it is one of those measured,
/// or, in a tensor that is not finite, how many of them are not.
template <typename T, typename Codec, int kRun>
TETRAD_HD inline void measure_run(const QuantProblem& p, const Codec& codec, bool sampled, std::int64_t item,
                                  QuantPart& part) {
  constexpr float kClipped = Codec::Element::kMax * (1.0f + 0x1p-20f);  // beyond what f32 rounding explains
  const bool poisoned = p.is_poisoned();
  // One run of sixteen, in other columns from row to row.
  if (sampled && !poisoned && ((item ^ (item >> 4)) & 15) != 0) return;
  const Place at = place_of_run<kRun>(p, item);
  float v[kRun];
  load_run<T>(p, at, v);
  if (poisoned) {
    for (int i = 0; i < kRun; ++i) part.non_finite += magnitude_bits(v[i]) >= kInfinityBits ? 1 : 0;
    return;
  }
  part.measured += kRun;
  const DecodeProblem stored = stored_by(p);
  for (int first = 0; first < kRun; first += kGroup) {
    const Place group{at.row, at.col + first};
    const auto scale = scale_of(p, codec, group);
    float value[kGroup];
    decode_group<Codec>(stored, group.row, group.col, codec.tensor_decode(), value);
    const float limit = scale.value > 0.0f ? kClipped : std::numeric_limits<float>::infinity();
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kGroup; ++i) {
      const float x = v[first + i];
      const float decoded = value[i];
      const double error = static_cast<double>(x) - static_cast<double>(decoded);
      part.signal += static_cast<double>(x) * static_cast<double>(x);
      part.noise += error * error;
      const double size = error < 0 ? -error : error;
      part.max_error = size > part.max_error ? size : part.max_error;
      part.flushed += decoded == 0.0f && x != 0.0f ? 1 : 0;
      part.saturated += std::bit_cast<float>(magnitude_bits(x * scale.encode)) > limit ? 1 : 0;
    }
  }
}

/// Whether a block is not zero, but its scale is.
template <typename Codec>
TETRAD_HD inline bool has_zero_scale(const QuantProblem& p, const Codec& codec, std::int64_t block) {
  const Place first{block / p.block_cols_total << p.block_row_shift,
                    block % p.block_cols_total << p.block_col_shift};
  return p.block_amax[block] != 0 && scale_of(p, codec, first).value == 0.0f;
}

}  // namespace tetrad::cuda
