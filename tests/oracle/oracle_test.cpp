// SPDX-License-Identifier: Apache-2.0
// The oracle against facts that were worked out by hand from docs/numerics.md.

#include "oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "inputs.h"

namespace tetrad::oracle {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Bytes = std::vector<std::uint8_t>;

Spec nvfp4(long block_rows = 1) {
  return {.format = Format::nvfp4, .block_rows = block_rows, .block_cols = 16};
}
Spec mxfp4() { return {.format = Format::mxfp4, .block_rows = 1, .block_cols = 32}; }
Spec fp8(long block_rows, long block_cols) {
  return {.format = Format::fp8, .block_rows = block_rows, .block_cols = block_cols};
}

/// `head`, then zeros up to `size`.
std::vector<float> padded(std::vector<float> head, std::size_t size) {
  head.resize(size);
  return head;
}

Bytes slice(const Bytes& bytes, std::size_t first, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

TEST(OracleE2m1, ValuesAndTies) {
  const std::vector<double> values = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(decode_e2m1(code), values[static_cast<std::size_t>(code)]);
    EXPECT_EQ(decode_e2m1(code + 8), -values[static_cast<std::size_t>(code)]);
    EXPECT_EQ(encode_e2m1(decode_e2m1(code)), code);
  }
  const std::vector<std::pair<double, double>> ties = {{.25, 0}, {.75, 1}, {1.25, 1}, {1.75, 2},
                                                       {2.5, 2}, {3.5, 4}, {5, 4}};
  const auto found = boundaries(Element::e2m1);
  ASSERT_EQ(found.size(), ties.size());
  for (std::size_t i = 0; i < ties.size(); ++i) {
    const auto [tie, rounded] = ties[i];
    EXPECT_EQ(found[i].midpoint, tie);
    EXPECT_EQ(found[i].tie_goes_up, rounded > tie);
    EXPECT_EQ(decode_e2m1(encode_e2m1(tie)), rounded);
    EXPECT_EQ(decode_e2m1(encode_e2m1(-tie)), -rounded);
    EXPECT_EQ(encode_e2m1(std::nextafter(tie, 0.0)), static_cast<int>(i));
    EXPECT_EQ(encode_e2m1(std::nextafter(tie, 9.0)), static_cast<int>(i) + 1);
  }
}

TEST(OracleE2m1, SaturationAndSignOfZero) {
  for (const double x : {6.0, 6.5, 7.0, 100.0, static_cast<double>(FLT_MAX), static_cast<double>(kInf)}) {
    EXPECT_EQ(encode_e2m1(x), 7);
    EXPECT_EQ(encode_e2m1(-x), 15);
  }
  EXPECT_EQ(encode_e2m1(-0.25), 8);
  EXPECT_EQ(encode_e2m1(-0x1p-149), 8);
  EXPECT_EQ(encode_e2m1(-0.0), 0);
}

TEST(OracleFp8, E4m3KnownCodes) {
  EXPECT_EQ(decode_e4m3(0x7E), 448);
  EXPECT_EQ(decode_e4m3(0x01), 0x1p-9);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6);
  EXPECT_EQ(decode_e4m3(0x38), 1);
  EXPECT_EQ(decode_e4m3(0xB8), -1);
  EXPECT_TRUE(std::isnan(decode_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(decode_e4m3(0xFF)));
  for (const double x : {448.0, 464.0, 465.0, 480.0, 1e30}) EXPECT_EQ(encode_e4m3(x), 0x7E) << x;
  EXPECT_EQ(encode_e4m3(-465), 0xFE);
  EXPECT_EQ(encode_e4m3(432), 0x7E);   // a tie, 416 or 448: even is 448
  EXPECT_EQ(encode_e4m3(0x1p-10), 0);  // a tie, 0 or the smallest
  EXPECT_EQ(encode_e4m3(0x3p-10), 2);  // 1.5 smallest
  EXPECT_EQ(encode_e4m3(-0x1p-11), 0x80);
  EXPECT_EQ(encode_e4m3(1.0625), 0x38);  // 1 or 1.125
  EXPECT_EQ(encode_e4m3(1.1875), 0x3A);  // 1.125 or 1.25
  EXPECT_EQ(boundaries(Element::e4m3).size(), 126U);
}

TEST(OracleFp8, EveryCodeComesBackAndNothingIsNearer) {
  for (int code = 0; code < 256; ++code) {
    if (code % 128 < 127) {
      EXPECT_EQ(encode_e4m3(decode_e4m3(code)), code);
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {  // all non-negative finite BF16
    const double x = static_cast<double>(std::bit_cast<float>(bits << 16));
    const double error = std::fabs(x - decode_e4m3(encode_e4m3(x)));
    double least = 1e300;
    for (int code = 0; code < 127; ++code) least = std::min(least, std::fabs(x - decode_e4m3(code)));
    ASSERT_EQ(error, least) << x;
  }
}

TEST(OracleBf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 1.0F);
  EXPECT_EQ(to_bf16(1 + 0x1p-8F), 1.0F);                    // tie, down to even
  EXPECT_EQ(to_bf16(1 + 0x3p-8F), 1 + 0x1p-6F);             // tie, up to even
  EXPECT_EQ(to_bf16(1 + 0x1p-8F + 0x1p-23F), 1 + 0x1p-7F);  // just above a tie
  EXPECT_EQ(to_bf16(0x1.FFp0F), 2.0F);                      // carries into the exponent
  EXPECT_EQ(to_bf16(0x1p-149F), 0.0F);
  EXPECT_TRUE(std::signbit(to_bf16(-0x1p-149F)));
  EXPECT_EQ(to_bf16(0x1p-134F), 0.0F);  // tie between 0 and the smallest
  EXPECT_EQ(to_bf16(0x3p-134F), 0x1p-132F);
  EXPECT_EQ(to_bf16(FLT_MAX), kInf);
  EXPECT_EQ(to_bf16(-0x1.FEp127F), -0x1.FEp127F);
  EXPECT_TRUE(std::isnan(to_bf16(kNan)));
  EXPECT_EQ(rounded_to_bf16({FLT_MAX, -FLT_MAX}), (std::vector<float>{0x1.FEp127F, -0x1.FEp127F}));
}

TEST(OracleBf16, HoldsEveryProductOfCodeAndScale) {
  for (int code = 0; code < 16; ++code) {
    for (int scale = 0; scale < 127; ++scale) {
      const auto product = static_cast<float>(decode_e2m1(code) * decode_e4m3(scale));
      ASSERT_EQ(to_bf16(product), product);
    }
  }
}

TEST(OraclePhilox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(OraclePhilox, BytesOfElements) {
  // Group 0 of seed 0: d5 e8 27 66 | 8d ...
  const Random zero;
  EXPECT_EQ(random_byte(zero, 0, 0, 32), 0xd5);
  EXPECT_EQ(random_byte(zero, 0, 1, 32), 0xe8);
  EXPECT_EQ(random_byte(zero, 0, 3, 32), 0x66);
  EXPECT_EQ(random_byte(zero, 0, 4, 32), 0x8d);
  EXPECT_EQ(random_byte(zero, 0, 15, 32), 0x9b);
  // Row 3 of 32 columns, column 18: element 114, group 7, byte 2. The seed's low word is the first word of
  // the key.
  const Random random = {.seed = 0x299f31d0a4093822, .step = 5, .microbatch = 6, .tensor = 9};
  EXPECT_EQ(random_byte(random, 3, 18, 32),
            static_cast<int>(philox({5, 6, 9, 7}, {0xa4093822, 0x299f31d0})[0] >> 16 & 255));
}

TEST(OracleStochastic, CountsOfRoundingUp) {
  // Of the 256 bytes, centred rounds up for round(256 * fraction) of them, hardware for floor(256 *
  // fraction).
  const auto ups = [](double x, int lo, bool centred) {
    int count = 0;
    for (int r = 0; r < 256; ++r) {
      const int code = encode_stochastic_e2m1(x, r, centred);
      EXPECT_TRUE(code == lo || code == lo + 1) << x;
      count += code == lo + 1 ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(ups(0.25, 0, true), 128);
  EXPECT_EQ(ups(0.25, 0, false), 128);
  EXPECT_EQ(ups(2.25, 4, true), 64);
  EXPECT_EQ(ups(5.5, 6, true), 192);
  EXPECT_EQ(ups(4 + 2 * 10.5 / 256, 6, true), 11);  // fraction + u is exactly 1 for r = 245
  EXPECT_EQ(ups(4 + 2 * 10.5 / 256, 6, false), 10);
  EXPECT_EQ(ups(4 + 2 * 10.25 / 256, 6, true), 10);
  EXPECT_EQ(ups(3, 5, true), 0);  // on a value: stays
  EXPECT_EQ(ups(-2.5, 12, true), 128);
  EXPECT_EQ(ups(std::nextafter(1.5, 0.0), 2, true), 256);
  EXPECT_EQ(ups(std::nextafter(1.5, 0.0), 2, false), 255);
}

TEST(OracleStochastic, EndsAndSigns) {
  for (int r = 0; r < 256; ++r) {
    EXPECT_EQ(encode_stochastic_e2m1(1e9, r, true), 7);
    EXPECT_EQ(encode_stochastic_e2m1(-6, r, false), 15);
    EXPECT_EQ(encode_stochastic_e2m1(-0.0, r, true), 0);
    EXPECT_EQ(encode_stochastic_e2m1(-0x1p-140, r, true), 8);
    EXPECT_EQ(encode_stochastic_e4m3(449, r, true), 0x7E);
    EXPECT_EQ(encode_stochastic_e4m3(1.125, r, true), 0x39);
    EXPECT_EQ(encode_stochastic_e4m3(1.0625, r, true), r >= 128 ? 0x39 : 0x38);
  }
}

TEST(OracleHadamard, IsTheMatrixOfTheDefinition) {
  const std::vector<int> signs = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (unsigned row = 0; row < 16; ++row) {
    std::vector<float> unit(16);
    unit[row] = 4;
    const auto y = hadamard(unit, kFixedSigns);
    for (unsigned col = 0; col < 16; ++col) {
      const int parity = std::popcount(row & col) % 2 == 0 ? 1 : -1;
      EXPECT_EQ(y[col], static_cast<float>(parity * signs[row]));
    }
  }
  EXPECT_EQ(hadamard({1, 2}, kNoSigns),
            (std::vector<float>{to_bf16(3 * 0.70710677F), to_bf16(-0.70710677F)}));
}

TEST(OracleHadamard, TwiceIsTheIdentityForExactInput) {
  for (const std::size_t size : {4U, 16U, 64U}) {
    std::vector<float> x(size);
    for (std::size_t i = 0; i < size; ++i) x[i] = static_cast<float>(static_cast<int>(i * 5 % 7) - 3);
    EXPECT_EQ(hadamard(hadamard(x, kNoSigns), kNoSigns), x) << size;
  }
  // The signs repeat after 16.
  std::vector<float> x(32, 0.0F);
  x[19] = 1;
  EXPECT_LT(hadamard(x, kFixedSigns)[0], 0);
}

TEST(OracleHadamard, RoundsInputAndEverySum) {
  // 1 + 2^-9 is 1 in BF16. 2^24 + 1 is 2^24 in f32, so the 1 is lost at the first stride and cannot come
  // back.
  EXPECT_EQ(hadamard({1 + 0x1p-9F, 0, 0, 0}, kNoSigns), (std::vector<float>{.5F, .5F, .5F, .5F}));
  EXPECT_EQ(hadamard({0x1p24F, 1, -0x1p24F, 0}, kNoSigns)[0], 0.0F);
}

TEST(OracleNvfp4, HandWorkedBlocks) {
  // amax 6: S_enc = 448. Block maxima 6, 3 and 1e-6 have scales 448, 224 and 7.5e-5, the last below 2^-10.
  std::vector<float> x = {
      0, .5,   1,     1.5,   2,    3,    4,    6,    -0.0F, -.5,   -1,   -1.5, -2, -3, -4, -6,  //
      3, .125, .374F, .376F, .625, .875, 1.25, 1.75, -2.5,  -2.4F, -.1F, 0,    0,  0,  0,  0};
  for (int i = 0; i < 16; ++i) x.push_back(i == 0 ? 1e-6F : i == 1 ? -1e-7F : 0.0F);
  x.resize(64, -0.0F);
  const Result r = quantize(x, 1, 64, nvfp4());
  EXPECT_EQ(r.amax, 6.0F);
  EXPECT_EQ(r.scale_bytes, (Bytes{0x7E, 0x76, 0, 0}));
  EXPECT_EQ(slice(r.codes, 0, 16), (Bytes{0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15}));
  // Twice the values: 6, ties .25 .748 .752 1.25 1.75 2.5 3.5, then -5 -4.8 -.2.
  EXPECT_EQ(slice(r.codes, 16, 16), (Bytes{7, 0, 1, 2, 2, 4, 4, 6, 14, 14, 8, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slice(r.packed, 0, 8), (Bytes{0x10, 0x32, 0x54, 0x76, 0x90, 0xBA, 0xDC, 0xFE}));
  // enc = FLT_MAX where the scale is zero, so what is not zero saturates, and decodes to zero all the same.
  EXPECT_EQ(slice(r.codes, 32, 3), (Bytes{7, 15, 0}));
  EXPECT_EQ(slice(r.codes, 48, 16), Bytes(16, 0));
  EXPECT_EQ(r.zero_scale_blocks, 1);
  EXPECT_EQ(r.blocks, 4);
  EXPECT_EQ(r.flushed, 4);    // 1e-6, -1e-7, .125 and -.1
  EXPECT_EQ(r.saturated, 0);  // a block without a scale is flushed, not clipped
  for (std::size_t i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(r.decoded[i], x[i]);
  EXPECT_FLOAT_EQ(r.decoded[24], -2.0F);
  EXPECT_NEAR(r.max_error, 0.5, 1e-6);
}

TEST(OracleNvfp4, SquareBlocksShareOneScale) {
  auto x = make_input("gaussian", 32, 48);
  const Result square = quantize(x, 32, 48, nvfp4(16));
  ASSERT_EQ(square.scale_bytes.size(), 32U * 3);
  EXPECT_EQ(square.blocks, 6);
  for (std::size_t row = 0; row < 32; ++row) {
    for (std::size_t col = 0; col < 3; ++col) {
      EXPECT_EQ(square.scale_bytes[row * 3 + col], square.scale_bytes[row / 16 * 16 * 3 + col]);
    }
  }
  // The transposed matrix has the transposed codes.
  std::vector<float> transposed(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) transposed[i % 48 * 32 + i / 48] = x[i];
  const Result other = quantize(transposed, 48, 32, nvfp4(16));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(square.codes[i], other.codes[i % 48 * 32 + i / 48]);
}

TEST(OracleNvfp4, FourSixChoosesTheLowerError) {
  Spec spec = nvfp4();
  spec.scaling = Scaling::four_six;
  // amax 1536: S_enc = 1. Four rows of a block each.
  auto x = padded({1536}, 16);
  const auto append = [&x](std::vector<float> block) {
    block.resize(16);
    x.insert(x.end(), block.begin(), block.end());
  };
  append({32, 24, 16, -8});               // 4 3 2 -1 with scale 8; 32/6 is no E4M3 value
  append({48, 8, 4, -32});                // 6 1 .5 -4 with scale 8; 12 loses
  append(std::vector<float>(16, 24.0F));  // exact with 4 and with 6: a tie, and 6 is kept
  append({});
  const Result r = quantize(x, 5, 16, spec);
  EXPECT_EQ(r.scale_bytes, (Bytes{0x78, 0x50, 0x50, 0x48, 0}));
  EXPECT_EQ(slice(r.codes, 16, 4), (Bytes{6, 5, 4, 10}));
  EXPECT_EQ(slice(r.codes, 32, 4), (Bytes{7, 2, 1, 14}));
  EXPECT_EQ(slice(r.codes, 48, 2), (Bytes{7, 7}));
  EXPECT_EQ(r.noise, 0);
}

TEST(OracleNvfp4, DecodesWithinHalfAStep) {
  for (const std::string kind : {"gaussian", "heavy_tailed", "constant_blocks"}) {
    const auto x = make_input(kind, 64, 256);
    const Result r = quantize(x, 64, 256, nvfp4());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double scale = decode_e4m3(r.scale_bytes[i / 16]) * static_cast<double>(r.amax) / 2688;
      const double a = std::fabs(static_cast<double>(x[i])) / scale;
      if (scale == 0 || a > 6) continue;
      const double half_step = a <= 2 ? .25 : a <= 4 ? .5 : 1;
      ASSERT_LE(std::fabs(static_cast<double>(x[i] - r.decoded[i])), half_step * scale * (1 + 1e-5))
          << kind << i;
    }
  }
}

TEST(OracleNvfp4, StochasticUsesTheByteOfThePosition) {
  std::vector<float> x(4 * 32, 0.3F);
  for (std::size_t i = 0; i < x.size(); i += 16) x[i] = 6;
  Spec spec = nvfp4();
  spec.rounding = Rounding::stochastic;
  const Random random = {.seed = 77, .step = 3, .microbatch = 1, .tensor = 42};
  const Result r = quantize(x, 4, 32, spec, random);
  for (long i = 0; i < 4 * 32; ++i) {
    const int byte = random_byte(random, i / 32, i % 32, 32);
    const int expected = i % 16 == 0 ? 7 : byte >= 102 ? 1 : 0;  // .6 + (r + .5)/256 >= 1
    ASSERT_EQ(r.codes[static_cast<std::size_t>(i)], expected) << i;
  }
}

TEST(OracleMxfp4, HandWorkedBlocks) {
  auto x = padded({6, -3, 1.25, 7.9F}, 32);                            // floor(log2 7.9) = 2: scale 1
  const auto second = padded({0x1p-149F, -0x1p-127F, 0x1p-126F}, 16);  // scale 2^-127, a tail of 16
  x.insert(x.end(), second.begin(), second.end());
  const Result r = quantize(x, 1, 48, mxfp4());
  EXPECT_EQ(r.scale_bytes, (Bytes{127, 0}));
  EXPECT_EQ(slice(r.codes, 0, 4), (Bytes{7, 13, 2, 7}));
  EXPECT_EQ(slice(r.codes, 32, 3), (Bytes{0, 10, 4}));
  EXPECT_EQ(r.saturated, 1);
  EXPECT_EQ(r.flushed, 1);
  EXPECT_EQ(r.zero_scale_blocks, 0);
  EXPECT_EQ(r.decoded[34], 0x1p-126F);
  EXPECT_EQ(quantize(padded({-FLT_MAX}, 32), 1, 32, mxfp4()).scale_bytes, (Bytes{252}));
  EXPECT_EQ(quantize(std::vector<float>(32), 1, 32, mxfp4()).scale_bytes, (Bytes{0}));
}

TEST(OracleFp8, ScalesOfEveryBlockShape) {
  const long rows = 130;
  const long cols = 144;
  std::vector<float> x(static_cast<std::size_t>(rows * cols), 1.0F);
  x[0] = -448;
  x[static_cast<std::size_t>(129 * cols + 143)] = 896;
  const Result lines = quantize(x, rows, cols, fp8(1, 128));
  ASSERT_EQ(lines.scales.size(), 130U * 2);
  EXPECT_EQ(lines.scales[0], 1.0F);
  EXPECT_EQ(lines.codes[0], 0xFE);
  EXPECT_EQ(lines.codes[1], 0x38);
  EXPECT_EQ(lines.scales[1], 1.0F / 448.0F);
  EXPECT_EQ(lines.scales[259], 2.0F);
  EXPECT_EQ(lines.packed, lines.codes);
  const Result squares = quantize(x, rows, cols, fp8(128, 128));
  EXPECT_EQ(squares.scales, (std::vector<float>{1.0F, 1.0F / 448.0F, 1.0F / 448.0F, 2.0F}));
  const Result whole = quantize(x, rows, cols, fp8(0, 0));
  EXPECT_EQ(whole.scales, (std::vector<float>{2.0F}));
  EXPECT_EQ(whole.decoded[1], 1.0F);
  EXPECT_EQ(quantize(std::vector<float>(128), 1, 128, fp8(1, 128)).scales, (std::vector<float>{1.0F}));
}

TEST(OracleQuantize, InputThatIsNotFiniteIsPoisoned) {
  for (const float bad : {kNan, kInf, -kInf}) {
    auto x = make_input("gaussian", 16, 128);
    x[77] = bad;
    for (const Spec& spec : {nvfp4(), nvfp4(16), mxfp4(), fp8(1, 128), fp8(0, 0)}) {
      const Result r = quantize(x, 16, 128, spec);
      EXPECT_EQ(r.non_finite, 1);
      EXPECT_TRUE(std::isnan(r.amax));
      EXPECT_TRUE(std::all_of(r.codes.begin(), r.codes.end(), [](int code) { return code == 0; }));
      EXPECT_TRUE(std::all_of(r.decoded.begin(), r.decoded.end(), [](float v) { return std::isnan(v); }));
      EXPECT_TRUE(std::all_of(r.scales.begin(), r.scales.end(), [](float v) { return std::isnan(v); }));
      const std::uint8_t byte = spec.format == Format::mxfp4 ? 255 : 0;
      EXPECT_EQ(r.scale_bytes, Bytes(r.scale_bytes.size(), byte));
    }
  }
  Spec spec = nvfp4();
  spec.hadamard = 16;
  EXPECT_GT(quantize(std::vector<float>(16, 0x1.FEp127F), 1, 16, spec).non_finite, 0);
}

TEST(OracleQuantize, RefusesWhatIsNotDefined) {
  EXPECT_THROW(quantize(std::vector<float>(24), 1, 24, nvfp4()), std::invalid_argument);
  EXPECT_THROW(quantize(std::vector<float>(8 * 16), 8, 16, nvfp4(16)), std::invalid_argument);
  EXPECT_THROW(quantize(std::vector<float>(32), 1, 32, fp8(1, 16)), std::invalid_argument);
  Spec spec = nvfp4();
  spec.hadamard = 32;
  EXPECT_THROW(quantize(std::vector<float>(48), 1, 48, spec), std::invalid_argument);
}

TEST(OracleInputs, AreWhatTheirNamesSay) {
  for (const std::string& kind : input_kinds()) {
    const auto x = make_input(kind, 48, 160);
    EXPECT_EQ(x.size(), 48U * 160);
    EXPECT_EQ(std::memcmp(x.data(), make_input(kind, 48, 160).data(), x.size() * sizeof(float)), 0) << kind;
    EXPECT_TRUE(std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); })) << kind;
    EXPECT_EQ(make_input(kind, 1, 16).size(), 16U);
    EXPECT_TRUE(make_input(kind, 0, 16).empty());
    EXPECT_EQ(quantize(x, 48, 160, nvfp4()).non_finite, 0);
  }
  EXPECT_THROW(make_input("nonsense", 1, 1), std::invalid_argument);
  const auto stats = [](const char* kind, const Spec& spec) {
    return quantize(make_input(kind, 256, 384), 256, 384, spec);
  };
  EXPECT_LT(stats("exact", nvfp4()).max_error, 1e-4);
  EXPECT_EQ(stats("exact", mxfp4()).max_error, 0);
  EXPECT_GT(stats("subnormals_mixed", nvfp4()).zero_scale_blocks, 100);
  EXPECT_GT(stats("subnormals", nvfp4()).zero_scale_blocks, 100);
  EXPECT_LT(stats("subnormals", nvfp4()).amax, 2688 / FLT_MAX);
  EXPECT_GT(stats("outlier", nvfp4()).zero_scale_blocks, 100);
  EXPECT_EQ(stats("float_max", nvfp4()).amax, FLT_MAX);
  const Result negative = stats("negative_zeros", nvfp4());
  EXPECT_GT(std::count(negative.codes.begin(), negative.codes.end(), 8), 1000);
}

TEST(OracleInputs, TiesAreTies) {
  const long rows = 256;
  const long cols = 384;
  const auto x = make_input("ties", rows, cols);
  // How many values scale to a boundary exactly.
  const auto count = [&](const Spec& spec, Element element, auto encode_of) {
    const Result r = quantize(x, rows, cols, spec);
    const auto list = boundaries(element);
    long found = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double a = static_cast<double>(std::fabs(x[i] * encode_of(r, i)));
      found +=
          std::any_of(list.begin(), list.end(), [a](const Boundary& b) { return b.midpoint == a; }) ? 1 : 0;
    }
    return found;
  };
  const auto nvfp4_scale = [](const Result& r, std::size_t i) {
    return static_cast<float>(1 / decode_e4m3(r.scale_bytes[i / 16]));  // S_dec = 1
  };
  const auto mxfp4_scale = [](const Result& r, std::size_t i) {
    return std::ldexp(1.0F, 127 - r.scale_bytes[i / 32]);
  };
  EXPECT_GT(count(nvfp4(), Element::e2m1, nvfp4_scale), 20000);
  EXPECT_GT(count(mxfp4(), Element::e2m1, mxfp4_scale), 20000);
  EXPECT_GT(
      count(fp8(1, 128), Element::e4m3, [](const Result& r, std::size_t i) { return 1 / r.scales[i / 128]; }),
      20000);
  EXPECT_GT(count(fp8(0, 0), Element::e4m3, [](const Result& r, std::size_t) { return 1 / r.scales[0]; }),
            20000);
}

}  // namespace
}  // namespace tetrad::oracle
