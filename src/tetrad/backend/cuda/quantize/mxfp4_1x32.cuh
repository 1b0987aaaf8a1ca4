// SPDX-License-Identifier: Apache-2.0
#pragma once
// MXFP4 1x32 of BF16 or f32 in registers: eight neighbours of a row in a thread, four threads to a block; or
// whole blocks down two neighbouring columns of memory. No tensor scale, so one pass over the values is
// enough.

#include <type_traits>

#include "tetrad/backend/cuda/quantize/nvfp4_block.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"
#include "tetrad/numerics/mxfp4.h"

namespace tetrad::cuda {

/// The scale of a block, and whether the fast casts hold for it, as in nvfp4_block.cuh: no value of type T
/// that is not zero becomes zero. None reaches 8, and those from 7 on are mx_magnitudes()'s business.
template <typename T>
TETRAD_HD inline BlockEncoding mx_encoding_of(float amax, Scaling scaling) {
  constexpr float kLeast = std::is_same_v<T, Bf16> ? 0x1p-16f : 1.0f;
  const mxfp4::BlockScale scale = mxfp4::block_scale(amax, scaling);
  return {scale.byte, scale.encode, scale.encode >= kLeast};
}

/// For values below 8: what is beyond 6 stays 6.
template <bool kStochastic, bool kTame>
TETRAD_HD inline std::uint32_t mx_magnitudes(const EightValues<kStochastic, kTame>& eight) {
  const std::uint32_t nibbles = eight.magnitudes();
  return kStochastic ? nibbles : nibbles - ((nibbles >> 3) & 0x11111111u);
}

// --- Rows -------------------------------------------------------------------------------------------------

inline constexpr int kMxPart = 8;                           //!< elements of a thread
inline constexpr int kMxThreads = mxfp4::kBlock / kMxPart;  //!< that share a block
inline constexpr int kMxPartsPerGroup = kGroup / kMxPart;   //!< which share random bits

/// A thread's part of a row.
template <typename T>
class MxPart {
 public:
  TETRAD_HD explicit MxPart(const T* from) {
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kVectors; ++i) {
      const FourWords vector = reinterpret_cast<const FourWords*>(from)[i];
      TETRAD_UNROLL_ON_DEVICE
      for (int j = 0; j < 4; ++j) word_[4 * i + j] = vector.word[j];
    }
  }
  /// The bits of the largest magnitude as f32; then every -0 is made +0.
  TETRAD_HD std::uint32_t take_amax() {
    std::uint32_t largest = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (std::uint32_t& word : word_) {
      if constexpr (kPairs) {
        largest = max_halves(largest, word & kMagnitudesOfPair);
        word = without_negative_zero(word);
      } else {
        const std::uint32_t magnitude = word & 0x7FFFFFFFu;
        largest = largest > magnitude ? largest : magnitude;
        word = magnitude == 0 ? 0 : word;
      }
    }
    return kPairs ? max_halves(largest, largest >> 16) << 16 : largest;
  }
  TETRAD_HD float value(int i) const {
    if constexpr (kPairs) return i % 2 == 0 ? low_bf16(word_[i / 2]) : high_bf16(word_[i / 2]);
    return std::bit_cast<float>(word_[i]);
  }
  /// A word with the signs of values 2i and 2i + 1 where BF16 has them.
  TETRAD_HD std::uint32_t signs(int i) const {
    if constexpr (kPairs) return word_[i];
    return byte_perm(word_[2 * i], word_[2 * i + 1], 0x7632u);
  }

 private:
  static constexpr bool kPairs = std::is_same_v<T, Bf16>;
  static constexpr int kVectors = kMxPart * static_cast<int>(sizeof(T)) / 16;
  std::uint32_t word_[4 * kVectors];
};

/// The magnitudes of a part; `random` are its two words. Where the block is not tame, the sign bits of
/// `pairs` become those of the codes.
template <bool kStochastic, bool kTame, typename T>
TETRAD_HD inline std::uint32_t mx_encode_part(const std::uint32_t (&random)[2], std::uint32_t bias,
                                              float encode, const MxPart<T>& part,
                                              std::uint32_t (&pairs)[kMxPart / 2]) {
  EightValues<kStochastic, kTame> eight;
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < 4; ++i) {
    const int byte = 2 * i % 4;
    std::uint32_t negative[2] = {};
    eight.put(0, i, part.value(2 * i) * encode, random[i / 2], byte, bias, negative[0]);
    eight.put(1, i, part.value(2 * i + 1) * encode, random[i / 2], byte + 1, bias, negative[1]);
    if constexpr (!kTame) pairs[i] = negative[0] << 15 | negative[1] << 31;
  }
  return mx_magnitudes(eight);
}

/// Encodes part `index` of a row and stores the result; `amax` is its block's, the bits of f32.
template <bool kStochastic, bool kOperand, typename T>
TETRAD_HD inline void mx_store_part(const QuantProblem& p, std::int64_t row, std::int64_t index,
                                    std::uint32_t amax, const MxPart<T>& part) {
  const BlockEncoding block = mx_encoding_of<T>(std::bit_cast<float>(amax), p.scaling);
  std::uint32_t random[2] = {};
  if constexpr (kStochastic) {
    const PhiloxWords words = p.random_words(row, index / kMxPartsPerGroup * kGroup);
    const bool second = index % kMxPartsPerGroup != 0;
    random[0] = second ? words[2] : words[0];
    random[1] = second ? words[3] : words[1];
  }
  std::uint32_t pairs[kMxPart / 2];
  TETRAD_UNROLL_ON_DEVICE
  for (int i = 0; i < kMxPart / 2; ++i) pairs[i] = part.signs(i);
  const std::uint32_t magnitudes =
      block.tame ? mx_encode_part<kStochastic, true>(random, bias_of(p), block.encode, part, pairs)
                 : mx_encode_part<kStochastic, false>(random, bias_of(p), block.encode, part, pairs);
  const std::int64_t place = row * (p.cols / kMxPart) + index;
  if constexpr (kOperand) {
    row_operand(magnitudes, twice(E8m0::decode(block.byte)), pairs);
    static_cast<FourWords*>(p.codes)[place] = {{pairs[0], pairs[1], pairs[2], pairs[3]}};
  } else {
    static_cast<std::uint32_t*>(p.codes)[place] = row_codes(magnitudes, pairs);
    if (place % kMxThreads == 0)
      static_cast<std::uint8_t*>(p.scales)[place / kMxThreads] = static_cast<std::uint8_t>(block.byte);
  }
}

// --- Columns ----------------------------------------------------------------------------------------------

/// 32 rows of two columns.
template <typename T>
struct Strip {
  float element[mxfp4::kBlock][2];

  TETRAD_HD float value(int r, int c) const { return element[r][c]; }
  TETRAD_HD std::uint32_t signs(int r) const {
    return byte_perm(std::bit_cast<std::uint32_t>(element[r][0]), std::bit_cast<std::uint32_t>(element[r][1]),
                     0x7632u);
  }
  TETRAD_HD void load_row(int r, const float* from) {
    const TwoWords words = *reinterpret_cast<const TwoWords*>(from);
    element[r][0] = std::bit_cast<float>(words.word[0]);
    element[r][1] = std::bit_cast<float>(words.word[1]);
  }
  /// The bits of the largest magnitude of each column; then every -0 is made +0.
  TETRAD_HD TwoWords take_maxima() {
    TwoWords largest = {};
    TETRAD_UNROLL_ON_DEVICE
    for (auto& row : element) {
      TETRAD_UNROLL_ON_DEVICE
      for (int c = 0; c < 2; ++c) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(row[c]) & 0x7FFFFFFFu;
        largest.word[c] = largest.word[c] > magnitude ? largest.word[c] : magnitude;
        row[c] = magnitude == 0 ? 0.0f : row[c];
      }
    }
    return largest;
  }
};

/// Word r has the two of row r.
template <>
struct Strip<Bf16> {
  std::uint32_t pair[mxfp4::kBlock];

  TETRAD_HD float value(int r, int c) const { return c == 0 ? low_bf16(pair[r]) : high_bf16(pair[r]); }
  TETRAD_HD std::uint32_t signs(int r) const { return pair[r]; }
  TETRAD_HD void load_row(int r, const Bf16* from) {
    struct alignas(4) Pair {
      Bf16 element[2];
    };
    pair[r] = std::bit_cast<std::uint32_t>(*reinterpret_cast<const Pair*>(from));
  }
  TETRAD_HD TwoWords take_maxima() {
    std::uint32_t largest = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (std::uint32_t& word : pair) {
      largest = max_halves(largest, word & kMagnitudesOfPair);
      word = without_negative_zero(word);
    }
    return {{largest << 16, largest & 0xFFFF0000u}};
  }
};

struct StripPlace {
  std::int64_t block, column;  //!< 32 rows of memory; first column
};

/// The strips of a matrix that lies transposed, counted along its rows of memory.
template <typename T>
class ColumnStrips {
 public:
  TETRAD_HD explicit ColumnStrips(const QuantProblem& p)
      : x_(static_cast<const T*>(p.x)),
        stride_(p.col_stride),
        per_row_(static_cast<std::uint32_t>(p.rows / 2)),
        count_(static_cast<std::uint32_t>(p.cols / mxfp4::kBlock) * per_row_) {}

  TETRAD_HD std::uint32_t count() const { return count_; }
  TETRAD_HD StripPlace place(std::uint32_t index) const {
    const std::uint32_t block = index / per_row_;
    return {block, std::int64_t{index - block * per_row_} * 2};
  }
  TETRAD_HD Strip<T> load(const StripPlace& at) const {
    const T* first = x_ + at.block * mxfp4::kBlock * stride_ + at.column;
    Strip<T> strip;
    TETRAD_UNROLL_ON_DEVICE
    for (int r = 0; r < mxfp4::kBlock; ++r) strip.load_row(r, first + r * stride_);
    return strip;
  }

 private:
  const T* x_;
  std::int64_t stride_;
  std::uint32_t per_row_, count_;
};

/// `kHadamard` is 0, 16 or 32.
template <int kHadamard, typename T>
TETRAD_HD inline void transform_strip(Strip<T>& strip, const SignMask& signs) {
  if constexpr (kHadamard > 0) {
    static_assert(std::is_same_v<T, Bf16>);
    TETRAD_UNROLL_ON_DEVICE
    for (int first = 0; first < mxfp4::kBlock; first += kHadamard) {
      float left[kHadamard];
      float right[kHadamard];
      TETRAD_UNROLL_ON_DEVICE
      for (int r = 0; r < kHadamard; ++r) left[r] = low_bf16(strip.pair[first + r]);
      TETRAD_UNROLL_ON_DEVICE
      for (int r = 0; r < kHadamard; ++r) right[r] = high_bf16(strip.pair[first + r]);
      hadamard<kHadamard>(left, signs);
      hadamard<kHadamard>(right, signs);
      TETRAD_UNROLL_ON_DEVICE
      for (int r = 0; r < kHadamard; ++r) strip.pair[first + r] = pack_bf16(left[r], right[r]);
    }
  }
}

/// What the two columns have in common in the steps below.
struct StripEncoding {
  float encode[2];
  std::uint32_t bias;
};

/// The magnitudes of rows first to first + 3: bytes of (even row, odd row) for both columns of the first two
/// rows, then of the others. random[c] is their word of column c's bits. Where a block is not tame, the sign
/// bits of `pairs` become those of the codes.
template <bool kStochastic, bool kTame, typename T>
TETRAD_HD inline std::uint32_t encode_four_rows(const Strip<T>& strip, int first, const StripEncoding& block,
                                                const std::uint32_t (&random)[2], std::uint32_t (&pairs)[4]) {
  EightValues<kStochastic, kTame> eight;  // nibbles: even and odd rows
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < 4; ++r) {
    std::uint32_t negative[2] = {};
    TETRAD_UNROLL_ON_DEVICE
    for (int c = 0; c < 2; ++c)
      eight.put(r % 2, r / 2 * 2 + c, strip.value(first + r, c) * block.encode[c], random[c], r, block.bias,
                negative[c]);
    if constexpr (!kTame) pairs[r] = negative[0] << 15 | negative[1] << 31;
  }
  return mx_magnitudes(eight);
}

template <bool kStochastic, bool kOperand, bool kTame, typename T>
TETRAD_HD inline void store_strip(const QuantProblem& p, const StripPlace& at, const StripEncoding& block,
                                  std::uint32_t scales, const Strip<T>& strip) {
  const std::int64_t row = at.block * mxfp4::kBlock;  // in memory
  TETRAD_UNROLL_ON_DEVICE
  for (int group = 0; group < mxfp4::kBlock; group += kGroup) {
    PhiloxWords random[2] = {};
    if constexpr (kStochastic) {
      random[0] = p.random_words(at.column, row + group);
      random[1] = p.random_words(at.column + 1, row + group);
    }
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kGroup / 4; ++i) {
      const auto word = static_cast<std::size_t>(i);
      const int first = group + 4 * i;
      const std::uint32_t words[2] = {random[0][word], random[1][word]};
      std::uint32_t pairs[4] = {strip.signs(first), strip.signs(first + 1), strip.signs(first + 2),
                                strip.signs(first + 3)};
      const std::uint32_t magnitudes =
          encode_four_rows<kStochastic, kTame>(strip, first, block, words, pairs);
      if constexpr (kOperand) {
        auto* out = static_cast<std::uint8_t*>(p.codes) + 2 * ((row + first) * p.rows + at.column);
        const DecodedBytes upper = decode_four(magnitudes & 0xFFFFu);
        const DecodedBytes lower = decode_four(magnitudes >> 16);
        const std::uint32_t values[4] = {pair_02(upper), pair_13(upper), pair_02(lower), pair_13(lower)};
        TETRAD_UNROLL_ON_DEVICE
        for (int r = 0; r < 4; ++r)
          *reinterpret_cast<std::uint32_t*>(out + 2 * r * p.rows) =
              mul_pairs(values[r], scales) | (pairs[r] & kSignsOfPair);
      } else {
        auto* out = static_cast<std::uint8_t*>(p.codes) + (row + first) / 2 * p.rows + at.column;
        const std::uint32_t codes = magnitudes | sign_nibbles(byte_perm(pairs[0], pairs[2], 0x7531u),
                                                              byte_perm(pairs[1], pairs[3], 0x7531u));
        *reinterpret_cast<std::uint16_t*>(out) = static_cast<std::uint16_t>(codes);
        *reinterpret_cast<std::uint16_t*>(out + p.rows) = static_cast<std::uint16_t>(codes >> 16);
      }
    }
  }
}

/// Encodes a strip and stores the result; returns the bits of its amax.
template <int kHadamard, bool kStochastic, bool kOperand, typename T>
TETRAD_HD inline std::uint32_t encode_strip(const QuantProblem& p, const StripPlace& at, Strip<T>& strip) {
  transform_strip<kHadamard>(strip, p.signs);
  const TwoWords largest = strip.take_maxima();
  const BlockEncoding left = mx_encoding_of<T>(std::bit_cast<float>(largest.word[0]), p.scaling);
  const BlockEncoding right = mx_encoding_of<T>(std::bit_cast<float>(largest.word[1]), p.scaling);
  if constexpr (!kOperand)
    *reinterpret_cast<std::uint16_t*>(static_cast<std::uint8_t*>(p.scales) + at.block * p.rows + at.column) =
        static_cast<std::uint16_t>(left.byte | right.byte << 8);
  const std::uint32_t scales =
      byte_perm(twice(E8m0::decode(left.byte)), twice(E8m0::decode(right.byte)), 0x5410u);
  const StripEncoding block{{left.encode, right.encode}, bias_of(p)};
  if (left.tame && right.tame)
    store_strip<kStochastic, kOperand, true>(p, at, block, scales, strip);
  else
    store_strip<kStochastic, kOperand, false>(p, at, block, scales, strip);
  return largest.word[0] > largest.word[1] ? largest.word[0] : largest.word[1];
}

}  // namespace tetrad::cuda
