// SPDX-License-Identifier: Apache-2.0
// What the formats promise: exact products, scale arithmetic that survives the ends of f32, and a block
// maximum that is represented to within the rounding of its scale.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/float_bits.h"
#include "oracle/oracle.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/fp8.h"
#include "tetrad/numerics/mxfp4.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

using testing::bits_of;
using testing::f32_of;
using testing::kInfinityF32;

constexpr std::uint32_t kE4m3LargestByte = 0x7E;
constexpr std::uint32_t kLargestCode = 7;  // 6 in E2M1
constexpr std::uint32_t kCodeOf4 = 6;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

constexpr bool is_nan_byte(std::uint32_t byte) { return (byte & 0x7Fu) == 0x7Fu; }

// ---- Products, proved by the compiler ----

/// x is a multiple of 2^-24 (the smallest value of FP16) with this many bits from its first to its last one.
constexpr bool fits(double x, int significant_bits) {
  const double scaled = (x < 0 ? -x : x) * 0x1p24;
  auto n = static_cast<std::uint64_t>(scaled);
  if (static_cast<double>(n) != scaled) return false;
  while (n != 0 && n % 2 == 0) n /= 2;
  return n < std::uint64_t{1} << significant_bits;
}

/// How many products of an E2M1 and a finite E4M3 value satisfy a predicate.
template <typename Predicate>
constexpr int count_products(Predicate predicate) {
  int count = 0;
  for (std::uint32_t code = 0; code < 16; ++code) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      if (is_nan_byte(byte)) continue;
      const double exact = static_cast<double>(E2m1::decode(code)) * static_cast<double>(E4m3::decode(byte));
      count += predicate(exact, nvfp4::decode_without_tensor_scale(code, byte)) ? 1 : 0;
    }
  }
  return count;
}

constexpr int kProducts = 16 * 254;
constexpr double magnitude(double x) { return x < 0 ? -x : x; }

static_assert(count_products([](double exact, float f32) { return static_cast<double>(f32) == exact; }) ==
              kProducts);
static_assert(count_products([](double, float f32) { return round_to_bf16(f32) == f32; }) == kProducts,
              "what a GEMM multiplies is exact in BF16");
static_assert(count_products([](double exact, float) { return fits(exact, 6); }) == kProducts, "2 + 4 bits");
static_assert(count_products([](double exact, float) { return fits(exact, 5); }) < kProducts, "and 6 occur");
// FP16 holds multiples of 2^-24 up to 65504 with 11 significant bits. The products do not even come near its
// subnormals (below 2^-14): the smallest is 0.5 * 2^-9 = 2^-10, the largest 6 * 448 = 2688.
static_assert(count_products([](double exact, float) { return fits(exact, 11); }) == kProducts);
static_assert(count_products([](double exact, float) {
                return exact == 0 || (magnitude(exact) >= 0x1p-10 && magnitude(exact) <= 2688);
              }) == kProducts);
static_assert(count_products([](double exact, float) { return magnitude(exact) == 0x1p-10; }) == 4);
static_assert(count_products([](double exact, float) { return magnitude(exact) == 2688; }) == 4);
// E4M3 does not hold them: 1.5 * 1.125 = 27/16 takes five bits.
static_assert(E4m3::decode(E4m3::encode(1.5f * 1.125f)) != 1.5f * 1.125f);
static_assert(count_products([](double, float f32) { return E4m3::decode(E4m3::encode(f32)) != f32; }) >
              1000);

TEST(Exactness, E2m1TimesE8m0IsExactInBf16) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    for (int byte = 0; byte <= 252; ++byte) {
      const float product = mxfp4::decode(code, static_cast<std::uint32_t>(byte));
      ASSERT_EQ(static_cast<double>(product),
                std::ldexp(static_cast<double>(E2m1::decode(code)), byte - 127));
      ASSERT_EQ(bits_of(round_to_bf16(product)), bits_of(product)) << code << " " << byte;
    }
  }
  // Why it matters that the quantizer stops at 252.
  EXPECT_TRUE(std::isinf(mxfp4::decode(kLargestCode, 253)));
  EXPECT_TRUE(std::isnan(mxfp4::decode(0, 255)));
}

// ---- Scales ----

/// Tensor maxima from end to end of f32, with both sides of where S_enc is clamped to FLT_MAX.
const std::vector<float>& tensor_maxima() {
  static const std::vector<float> maxima = {
      FLT_MAX, 0x1.FEp127f,    3e38f,    1e10f,  2688.0f, 1.0f,    0.0123f,     6e-8f,     1e-30f,
      1e-35f,  2688 / FLT_MAX, 7.9e-36f, 1e-36f, 1e-37f,  FLT_MIN, FLT_MIN / 4, 0x1p-140f, 0x1p-149f};
  return maxima;
}

/// Every positive BF16 up to `largest`, and `largest`.
std::vector<float> block_maxima(float largest) {
  std::vector<float> maxima = {largest};
  for (std::uint32_t bits = 1u << 16; bits < kInfinityF32 && f32_of(bits) <= largest; bits += 1u << 16)
    maxima.push_back(f32_of(bits));
  return maxima;
}

constexpr long kColumns = 16;  // one block a row in every format; for MXFP4 and FP8 a short one

/// A block for each maximum: the maximum, a smaller value of the other sign, zeros. [maxima, kColumns]
std::vector<float> blocks_of(const std::vector<float>& maxima) {
  std::vector<float> x(maxima.size() * kColumns);
  for (std::size_t row = 0; row < maxima.size(); ++row) {
    x[row * kColumns] = maxima[row];
    x[row * kColumns + 1] = -0.4f * maxima[row];
  }
  return x;
}

/// Compares the codes and values of blocks_of(maxima) with the oracle's. `encode(row, x)` gives the code and
/// `decode(row, code)` the value.
template <typename Encode, typename Decode>
void expect_elements(const std::vector<float>& x, const oracle::Result& expected, Encode encode,
                     Decode decode) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kColumns > 2) continue;
    const std::size_t row = i / kColumns;
    const std::uint32_t code = encode(row, x[i]);
    ASSERT_EQ(code, expected.codes[i]) << x[i];
    ASSERT_EQ(bits_of(decode(row, code)), bits_of(expected.decoded[i])) << x[i];
  }
}

/// enc_b of the definition. Compared as such because one ulp of it rarely shows in codes.
float encode_of_block(std::uint32_t byte, float tensor_decode) {
  const double decode = oracle::decode_e4m3(static_cast<int>(byte)) * static_cast<double>(tensor_decode);
  return std::min(static_cast<float>(1 / static_cast<double>(static_cast<float>(decode))), FLT_MAX);
}

TEST(Nvfp4Scales, EveryBf16BlockMaximumAsTheOracle) {
  for (const float tensor_amax : tensor_maxima()) {
    const std::vector<float> maxima = block_maxima(tensor_amax);
    const std::vector<float> x = blocks_of(maxima);
    const auto expected = oracle::quantize(x, static_cast<long>(maxima.size()), kColumns, {});
    ASSERT_EQ(expected.amax, tensor_amax);
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(tensor_amax);
    std::vector<nvfp4::BlockScale> scales;
    for (std::size_t row = 0; row < maxima.size(); ++row) {
      scales.push_back(nvfp4::block_scale(maxima[row], tensor));
      ASSERT_EQ(scales[row].byte, expected.scale_bytes[row]) << tensor_amax << " " << maxima[row];
      ASSERT_EQ(scales[row].encode, encode_of_block(scales[row].byte, tensor.decode)) << maxima[row];
    }
    ASSERT_NO_FATAL_FAILURE(expect_elements(
        x, expected, [&](std::size_t row, float value) { return E2m1::encode(value * scales[row].encode); },
        [&](std::size_t row, std::uint32_t code) { return nvfp4::decode(code, scales[row].byte, tensor); }));
  }
}

TEST(Nvfp4Scales, FourSixChoosesOneOfTheTwoCandidatesAsTheOracle) {
  for (const float tensor_amax : tensor_maxima()) {
    const std::vector<float> maxima = block_maxima(tensor_amax);
    const auto expected = oracle::quantize(blocks_of(maxima), static_cast<long>(maxima.size()), kColumns,
                                           {.scaling = oracle::Scaling::four_six});
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(tensor_amax, Scaling::four_six);
    long other_than_6 = 0;
    for (std::size_t row = 0; row < maxima.size(); ++row) {
      const auto [six, four] = nvfp4::candidates_for(maxima[row], tensor);
      ASSERT_TRUE(expected.scale_bytes[row] == six || expected.scale_bytes[row] == four) << maxima[row];
      other_than_6 += expected.scale_bytes[row] != six ? 1 : 0;
    }
    if (maxima.size() > 1000) {
      EXPECT_GT(other_than_6, 0) << tensor_amax;
    }
  }
}

// The largest block of a tensor gets the scale that the tensor scale aims at: 448; with room to stretch 256,
// stretched 384. That is, the stretch never saturates. Not so where S_enc is clamped: there scales are
// smaller.
TEST(Nvfp4Scales, LargestBlockOfEveryBf16TensorMaximum) {
  constexpr std::uint32_t k256 = 0x78;
  constexpr std::uint32_t k384 = 0x7C;
  for (const float amax : block_maxima(FLT_MAX)) {
    const nvfp4::TensorScale plain = nvfp4::tensor_scale(amax);
    const nvfp4::TensorScale chosen = nvfp4::tensor_scale(amax, Scaling::search);
    const std::uint32_t byte = nvfp4::block_scale(amax, plain).byte;
    const auto [byte_of_6, byte_of_4] = nvfp4::candidates_for(amax, chosen);
    if (amax >= 2688 / FLT_MAX) {
      ASSERT_EQ(byte, kE4m3LargestByte) << amax;
      ASSERT_EQ(byte_of_6, k256) << amax;
      ASSERT_EQ(byte_of_4, k384) << amax;
    } else {
      ASSERT_LE(byte, kE4m3LargestByte) << amax;
      ASSERT_LE(byte_of_6, k256) << amax;
      ASSERT_LE(byte_of_4, k384) << amax;
    }
  }
}

TEST(Nvfp4Scales, ByteIsNeverNan) {
  std::vector<float> maxima =
      block_maxima(FLT_MAX);  // also beyond the tensor's, as a wrong amax would have it
  maxima.insert(maxima.end(), {0.0f, kInf});
  for (const float tensor_amax : tensor_maxima()) {
    for (const Scaling scaling : {Scaling::standard, Scaling::search}) {
      const nvfp4::TensorScale tensor = nvfp4::tensor_scale(tensor_amax, scaling);
      ASSERT_EQ(nvfp4::block_scale(0.0f, tensor).byte, 0u);
      ASSERT_EQ(nvfp4::block_scale(0.0f, tensor).encode, FLT_MAX);
      for (const float block_amax : maxima) {
        for (int candidate = 0; candidate < nvfp4::kMostCandidates; ++candidate) {
          const nvfp4::BlockScale scale =
              nvfp4::scale_of_byte(nvfp4::candidates_for(block_amax, tensor).byte(candidate), tensor);
          ASSERT_LE(scale.byte, kE4m3LargestByte) << tensor_amax << " " << block_amax;
          ASSERT_TRUE(std::isfinite(scale.encode) && scale.encode > 0) << tensor_amax << " " << block_amax;
        }
      }
    }
  }
}

constexpr bool is_unit(nvfp4::TensorScale s) {
  return s.encode == 1 && s.decode == 1 && s.block_multiplier == 1.0f / 6;
}
static_assert(is_unit(nvfp4::tensor_scale(0.0f)) && is_unit(nvfp4::tensor_scale(2688.0f)));
static_assert(is_unit(nvfp4::tensor_scale(1536.0f, Scaling::four_six)) &&
              is_unit(nvfp4::tensor_scale(-0.0f)));
static_assert(is_unit(nvfp4::tensor_scale(kInf)), "S_enc == 0 -> 1; infinite input is reported elsewhere");
static_assert(nvfp4::tensor_scale(0x1p-149f).encode == FLT_MAX && nvfp4::tensor_scale(0x1p-149f).decode > 0);
static_assert(nvfp4::tensor_scale(FLT_MAX).encode > FLT_MIN && nvfp4::tensor_scale(FLT_MAX).decode < FLT_MAX);
static_assert(nvfp4::tensor_scale(kNan).decode != nvfp4::tensor_scale(kNan).decode,
              "a poisoned tensor stays so");
constexpr mxfp4::BlockScale floored(float amax) { return mxfp4::block_scale(amax, Scaling::standard); }
constexpr mxfp4::BlockScale raised(float amax) { return mxfp4::block_scale(amax, Scaling::up); }
static_assert(floored(0.0f).byte == 0 && floored(0x1p-149f).byte == 0 && raised(0.0f).byte == 0);
static_assert(floored(0.0f).encode == 0x1p127f);
static_assert(floored(FLT_MAX).byte == 252 && floored(4.0f).byte == 127);
static_assert(floored(FLT_MAX).encode == 0x1p-125f);
static_assert(raised(6.0f).byte == 127 && raised(f32_of(0x40C00001)).byte == 128, "from just above 6 on");
static_assert(raised(0x1.8p-125f).byte == 0 && raised(0x1.9p-125f).byte == 1);
static_assert(raised(FLT_MAX).byte == 252, "with 253 its code, 4, would decode to infinity");
static_assert(fp8::block_scale(0.0f).encode == 1 && fp8::block_scale(0.0f).decode == 1);
static_assert(fp8::block_scale(448.0f).encode == 1 && fp8::block_scale(896.0f).decode == 2);
static_assert(fp8::block_scale(0x1p-149f).encode == FLT_MAX &&
              fp8::block_scale(0x1p-149f).decode == 1 / FLT_MAX);

TEST(Mxfp4Scales, EveryBf16BlockMaximumAsTheOracle) {
  const std::vector<float> maxima = block_maxima(FLT_MAX);
  const std::vector<float> x = blocks_of(maxima);
  for (const bool up : {false, true}) {
    const auto expected = oracle::quantize(x, static_cast<long>(maxima.size()), kColumns,
                                           {.format = oracle::Format::mxfp4,
                                            .block_cols = mxfp4::kBlock,
                                            .scaling = up ? oracle::Scaling::up : oracle::Scaling::standard});
    const auto scale_of = [&](std::size_t row) { return up ? raised(maxima[row]) : floored(maxima[row]); };
    for (std::size_t row = 0; row < maxima.size(); ++row) {
      const mxfp4::BlockScale scale = scale_of(row);
      ASSERT_EQ(scale.byte, expected.scale_bytes[row]) << maxima[row];
      ASSERT_LE(scale.byte, 252u);
      ASSERT_EQ(scale.encode * E8m0::decode(scale.byte), 1.0f);
      if (up && maxima[row] <= 0x1.8p127f) {
        ASSERT_LE(maxima[row] * scale.encode, 6.0f) << "saturates";
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_elements(
        x, expected, [&](std::size_t row, float value) { return E2m1::encode(value * scale_of(row).encode); },
        [&](std::size_t row, std::uint32_t code) { return mxfp4::decode(code, scale_of(row).byte); }));
  }
}

TEST(Fp8Scales, EveryBf16BlockMaximumAsTheOracle) {
  const std::vector<float> maxima = block_maxima(FLT_MAX);
  const std::vector<float> x = blocks_of(maxima);
  const auto expected = oracle::quantize(x, static_cast<long>(maxima.size()), kColumns,
                                         {.format = oracle::Format::fp8, .block_cols = fp8::kBlock});
  for (std::size_t row = 0; row < maxima.size(); ++row)
    ASSERT_EQ(bits_of(fp8::block_scale(maxima[row]).decode), bits_of(expected.scales[row])) << maxima[row];
  expect_elements(
      x, expected,
      [&](std::size_t row, float value) {
        return E4m3::encode(value * fp8::block_scale(maxima[row]).encode);
      },
      [&](std::size_t row, std::uint32_t code) {
        return fp8::decode(code, fp8::block_scale(maxima[row]).decode);
      });
}

// 6 * 448 * S_dec is within two roundings of amax, so the largest code could decode to infinity for maxima
// just below FLT_MAX. It does not: all f32 of the last binade.
TEST(Scales, NoMaximumDecodesToInfinity) {
  for (std::uint32_t bits = bits_of(0x1p127f); bits < kInfinityF32; ++bits) {
    const float amax = f32_of(bits);
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(amax);
    const float from_nvfp4 = nvfp4::decode(kLargestCode, nvfp4::block_scale(amax, tensor).byte, tensor);
    const nvfp4::TensorScale chosen = nvfp4::tensor_scale(amax, Scaling::search);
    const auto [six, four] = nvfp4::candidates_for(amax, chosen);
    const float from_6 = nvfp4::decode(kLargestCode, six, chosen);
    const float from_4 = nvfp4::decode(kCodeOf4, four, chosen);
    const float from_mxfp4 = mxfp4::decode(kLargestCode, mxfp4::block_scale(amax, Scaling::up).byte);
    const float from_fp8 = fp8::decode(kE4m3LargestByte, fp8::block_scale(amax).decode);
    const float largest = std::max({from_nvfp4, from_6, from_4, from_mxfp4, from_fp8});
    if (!(largest <= FLT_MAX)) FAIL() << "amax " << amax << " bits " << std::hex << bits;
  }
}

// alpha = amax_a * amax_b / (range_a * range_b) stands for S_dec of both operands. Each amax / range agrees
// with its S_dec to the roundings of S_enc and S_dec, 2^-24 each, or 2^-22 for an S_dec that is subnormal
// (not below 1/FLT_MAX = 2^-128, rounded to 2^-150).
TEST(Nvfp4Alpha, AgreesWithDecoding) {
  for (const Scaling scaling : {Scaling::standard, Scaling::search}) {
    const float range = nvfp4::tensor_range(scaling);
    const float clamp = range / FLT_MAX;
    std::vector<float> maxima = block_maxima(FLT_MAX);
    for (std::uint32_t ulps = 0; ulps <= 2000; ++ulps) maxima.push_back(f32_of(bits_of(clamp) - 1000 + ulps));
    for (const float amax : maxima) {
      const float used = nvfp4::alpha_amax(amax, scaling);
      const auto decode = static_cast<double>(nvfp4::tensor_scale(amax, scaling).decode);
      const double rounding = decode >= double{FLT_MIN} ? 0x1.01p-23 : 0x1.01p-22 + 0x1p-24;
      ASSERT_NEAR(static_cast<double>(used) / static_cast<double>(range) / decode, 1, rounding) << amax;
      ASSERT_EQ(used, amax >= clamp ? amax : clamp);
    }
    EXPECT_EQ(nvfp4::alpha_amax(0.0f, scaling), 0.0f);
    EXPECT_TRUE(std::isnan(nvfp4::alpha_amax(kNan, scaling)));
  }
  static_assert(nvfp4::tensor_range(Scaling::standard) == 2688 &&
                nvfp4::tensor_range(Scaling::four_six) == 1536 &&
                nvfp4::tensor_range(Scaling::search) == 1536);
}

// ---- The promise ----

struct Worst {
  double error = 0;
  long blocks = 0;
};

/// Below this the encoding factor of a block, 6 / amax_b, comes to FLT_MAX and is clamped: there is no
/// promise.
constexpr float kSmallestPromised = 7 / FLT_MAX;  // 6 * 18/17 and f32 roundings

/// Quantizes the maximum of each block whose scale, before it is rounded, is in the normal range of E4M3, and
/// decodes it.
Worst worst_error_of_maxima(const std::vector<float>& maxima, float tensor_amax, Scaling scaling,
                            float stretch) {
  const nvfp4::TensorScale tensor = nvfp4::tensor_scale(tensor_amax, scaling);
  Worst worst;
  for (const float block_amax : maxima) {
    const float ideal = block_amax * tensor.block_multiplier * stretch;
    if (ideal < E4m3::kMinNormal || block_amax < kSmallestPromised) continue;
    const auto [six, four] = nvfp4::candidates_for(block_amax, tensor);
    const nvfp4::BlockScale scale = nvfp4::scale_of_byte(stretch == 1 ? six : four, tensor);
    const std::uint32_t code = E2m1::encode(block_amax * scale.encode);
    EXPECT_EQ(code, stretch == 1 ? kLargestCode : kCodeOf4) << tensor_amax << " " << block_amax;
    const auto value = static_cast<double>(nvfp4::decode(code, scale.byte, tensor));
    worst.error = std::max(worst.error, std::fabs(value / static_cast<double>(block_amax) - 1));
    ++worst.blocks;
  }
  return worst;
}

// Let t = amax_b S_enc / 6 be the ideal scale, and s = t (1 + d) the E4M3 it is rounded to. In a binade t =
// (1 + f) 2^e the error is at most half a step, 2^e / 16, and f >= 1/16 where it is that large: |d| <= (1/16)
// / (17/16) = 1/17. (A subnormal t has larger errors: just below 2^-6 already 1/15.) The maximum is scaled to
// 6 / (1 + d), in [5.66, 6.38], which E2M1 casts to 6 (4 / (1 + d), in [3.77, 4.25], to 4), so it decodes to
// 6 s / S_enc = amax_b (1 + d). S_enc cancels; what remains are f32 roundings: 1/6, S_enc / 6, the product,
// its stretch and the value, 2^-24 each, and 2^-22 for an S_dec that is subnormal. Together less than 2^-20.
constexpr double kPromise = 1.0 / 17 + 0x1p-20;
static_assert(kPromise < 0x1p-4);

TEST(Nvfp4Promise, BlockMaximumIsWithinTheRoundingOfItsScale) {
  double worst_of_all = 0;
  for (const float tensor_amax : tensor_maxima()) {
    const std::vector<float> maxima = block_maxima(tensor_amax);
    const Worst plain = worst_error_of_maxima(maxima, tensor_amax, Scaling::standard, 1);
    const Worst six = worst_error_of_maxima(maxima, tensor_amax, Scaling::four_six, 1);
    const Worst four = worst_error_of_maxima(maxima, tensor_amax, Scaling::four_six, nvfp4::kStretch);
    for (const Worst& worst : {plain, six, four}) {
      EXPECT_LE(worst.error, kPromise) << tensor_amax;
      worst_of_all = std::max(worst_of_all, worst.error);
    }
    // 14 binades and the beginning of one, 128 BF16 each, unless they end at kSmallestPromised.
    const long least = tensor_amax >= 1e-30f ? 14 * 128 : 0;
    EXPECT_GE(plain.blocks, least) << tensor_amax;
  }
  EXPECT_GT(worst_of_all, 1.0 / 17 - 1e-9) << "the bound is attained, at ties";
}

// A neighbour of the scale is at most a step further away: the largest error is that of t just above 17/16,
// which is rounded to 9/8 and has 10/8 as its neighbour. 6 / (20/17) = 5.1 is still cast to 6.
TEST(Nvfp4Promise, SearchLosesAtMostThreeSeventeenthsOfABlockMaximum) {
  double worst = 0;
  for (const float tensor_amax : tensor_maxima()) {
    const nvfp4::TensorScale tensor = nvfp4::tensor_scale(tensor_amax, Scaling::search);
    for (const float block_amax : block_maxima(tensor_amax)) {
      if (block_amax * tensor.block_multiplier < E4m3::kMinNormal || block_amax < kSmallestPromised) continue;
      const nvfp4::Candidates candidates = nvfp4::candidates_for(block_amax, tensor);
      for (int i = 0; i < nvfp4::kMostCandidates; ++i) {
        const nvfp4::BlockScale scale = nvfp4::scale_of_byte(candidates.byte(i), tensor);
        const std::uint32_t code = E2m1::encode(block_amax * scale.encode);
        const auto value = static_cast<double>(nvfp4::decode_without_tensor_scale(code, scale.byte)) *
                           static_cast<double>(tensor.decode);
        worst = std::max(worst, std::fabs(value / static_cast<double>(block_amax) - 1));
      }
    }
  }
  EXPECT_LE(worst, 3.0 / 17 + 0x1p-20);
  EXPECT_GT(worst, 3.0 / 17 - 0.01);
}

// The same in f32 beside the ties of the scale, where the error is largest. amax 2688 makes S_enc 1 and t =
// amax_b / 6.
TEST(Nvfp4Promise, HoldsBesideEveryTieOfTheScale) {
  std::vector<float> maxima;
  for (const oracle::Boundary& boundary : oracle::boundaries(oracle::Element::e4m3))
    for (std::uint32_t ulps = 0; ulps <= 8; ++ulps)
      maxima.push_back(f32_of(bits_of(static_cast<float>(6 * boundary.midpoint)) + ulps - 4));
  const Worst worst = worst_error_of_maxima(maxima, 2688.0f, Scaling::standard, 1);
  EXPECT_LE(worst.error, kPromise);
  EXPECT_GT(worst.blocks, 9 * 117);
}

}  // namespace
}  // namespace tetrad
