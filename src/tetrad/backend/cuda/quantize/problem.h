// SPDX-License-Identifier: Apache-2.0
#pragma once
// One quantization as its kernels see it: plain numbers and device addresses. The matrix is the one consumed,
// [rows, cols] with the blocks along cols; how it lies in memory is in the strides.
//
// Kernels are loops over functions of (problem, item) that know nothing of threads (generic_run.cuh,
// nvfp4_block.cuh), so that a test can call them one item after another without a device.

#include <cstdint>
#include <limits>

#include "tetrad/backend/codec.h"
#include "tetrad/backend/cuda/common/words.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/eden.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cuda {

inline constexpr std::uint32_t kInfinityBits = 0x7F800000u;
inline constexpr int kGroup = RandomStream::kGroup;  //!< elements that share random bits; divides every block

/// The per-tensor state between the passes, in the device's memory.
struct QuantState {
  std::uint32_t amax_bits;  //!< the largest of the bits of |x|: NaN and infinity are above everything
};

struct QuantProblem {
  const void* x = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_stride = 0, col_stride = 1;  //!< in elements; one of them is 1
  bool wide = false;                            //!< rows can be read 16 bytes at a time

  Format format = Format::nvfp4;
  Rounding rounding = Rounding::nearest;
  int hadamard = 0;
  SignMask signs = kFixedSigns;
  Scaling scaling = Scaling::standard;
  bool whole = false;                            //!< one scale for the tensor
  int block_row_shift = 0, block_col_shift = 4;  //!< block extents are powers of two
  std::int64_t block_rows_total = 0;             //!< the grid of blocks
  std::int64_t block_cols_total = 0;

  RandomStream random = {};
  const RandomKey* key = nullptr;  //!< in device memory: replaces seed, step and microbatch of `random`
  static constexpr int kRounds = 10;
  std::uint32_t round_keys[kRounds][2] = {};  //!< Philox's, the same for every thread
  PartOfTensor part = {};                     //!< total_cols filled in
  bool amax_given = false;
  float given_amax = 0;

  CodeOrder order = CodeOrder::row_major;
  Form form = Form::packed;
  void* codes = nullptr;
  void* scales = nullptr;
  std::int64_t scale_rows = 0, scale_cols = 0;
  float* amax = nullptr;  //!< where the result keeps its own

  QuantState* state = nullptr;
  std::uint32_t* block_amax = nullptr;  //!< bits, [block_rows_total, block_cols_total]; generic kernels only
  std::uint8_t* chosen = nullptr;       //!< likewise: scale bytes, where they depend on values

  /// Elements of a row that are handled together: a whole transform.
  TETRAD_HD int run() const { return hadamard > kGroup ? hadamard : kGroup; }
  TETRAD_HD std::int64_t runs() const { return rows * (cols / run()); }
  TETRAD_HD bool is_row_major() const { return col_stride == 1; }
  TETRAD_HD bool is_stochastic() const { return rounding != Rounding::nearest; }
  TETRAD_HD StochasticBias bias() const {
    return rounding == Rounding::stochastic ? StochasticBias::centred : StochasticBias::hardware;
  }
  TETRAD_HD std::int64_t block_of(std::int64_t row, std::int64_t col) const {
    return (row >> block_row_shift) * block_cols_total + (col >> block_col_shift);
  }
  /// Where the group that begins at an element draws its random bytes.
  TETRAD_HD std::uint32_t random_group(std::int64_t row, std::int64_t col) const {
    const std::int64_t element = (part.first_row + row) * part.total_cols + part.first_col + col;
    return static_cast<std::uint32_t>(element / kGroup);
  }
  /// random.group(random_group(row, col)), with the keys of the rounds ready or, where the key is read when
  /// the kernel runs, made on the way.
  TETRAD_HD PhiloxWords random_words(std::int64_t row, std::int64_t col) const {
    return random_words(random_group(row, col));
  }
  TETRAD_HD PhiloxWords random_words(std::uint32_t group) const {
    PhiloxWords words;
    if (key == nullptr) {
      words = {random.step, random.microbatch, random.tensor, group};
      TETRAD_UNROLL_ON_DEVICE
      for (const auto& round_key : round_keys) philox_round(words, round_key[0], round_key[1]);
    } else {
      const RandomKey now = *key;
      words = {now.step, now.microbatch, random.tensor, group};
      auto low = static_cast<std::uint32_t>(now.seed);
      auto high = static_cast<std::uint32_t>(now.seed >> 32);
      TETRAD_UNROLL_ON_DEVICE
      for (int round = 0; round < kRounds; ++round) {
        philox_round(words, low, high);
        low += kPhiloxLowStep;
        high += kPhiloxHighStep;
      }
    }
    return {in_register(words[0]), in_register(words[1]), in_register(words[2]), in_register(words[3])};
  }
  /// Of the block that begins at an element, where scales are drawn.
  TETRAD_HD std::uint32_t random_byte_of_block(std::int64_t row, std::int64_t col) const {
    const std::uint32_t block = random_group(row, col);
    return nvfp4::random_byte_of_block(random_words(block / kGroup), block);
  }
  TETRAD_HD bool is_poisoned() const { return state->amax_bits >= kInfinityBits; }
  /// What the tensor is scaled by, once the first pass is through.
  TETRAD_HD float tensor_amax() const {
    if (is_poisoned()) return std::numeric_limits<float>::quiet_NaN();
    return amax_given ? given_amax : std::bit_cast<float>(state->amax_bits);
  }
};

/// The problem of a matrix as consumed, into `out`, which has its shape, its order, its form and its buffers.
/// What lies between the passes is left to the caller.
QuantProblem make_problem(const MatrixView& consumed, const QuantSpec& spec, const QuantizeOptions& options,
                          QuantizedTensor& out);

/// A part of the statistics: what one block of threads has measured.
struct QuantPart {
  double signal = 0, noise = 0, max_error = 0;
  std::int64_t non_finite = 0, zero_scale_blocks = 0, measured = 0, flushed = 0, saturated = 0;

  TETRAD_HD void merge(const QuantPart& other) {
    signal += other.signal;
    noise += other.noise;
    max_error = other.max_error > max_error ? other.max_error : max_error;
    non_finite += other.non_finite;
    zero_scale_blocks += other.zero_scale_blocks;
    measured += other.measured;
    flushed += other.flushed;
    saturated += other.saturated;
  }
};

}  // namespace tetrad::cuda
