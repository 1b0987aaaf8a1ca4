// SPDX-License-Identifier: Apache-2.0
// Names, validation and rearrangements of quantized tensors: everything about quantization that is not
// arithmetic.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {
namespace {

std::string message_of(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  try {
    validate(spec, rows, cols, "tensor 'w'");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::bad_input);
    return error.what();
  }
  return "";
}

TEST(QuantSpec, NamesRoundTrip) {
  for (const Format format : {Format::nvfp4, Format::mxfp4, Format::fp8}) {
    EXPECT_EQ(format_from_name(name_of(format)), format);
    EXPECT_EQ(block_from_name(name_of(default_block(format))), default_block(format));
  }
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::stochastic_hardware})
    EXPECT_EQ(rounding_from_name(name_of(rounding)), rounding);
  EXPECT_EQ(block_from_name("tensor"), BlockShape::whole());
  EXPECT_THROW(format_from_name("fp3"), Error);
  EXPECT_THROW(block_from_name("3x3"), Error);
}

TEST(QuantSpec, MessagesSayWhichTensorAndDimensionAndWhatToDo) {
  EXPECT_EQ(message_of({}, 3, 64), "");
  const std::string message = message_of({}, 64, 20);
  EXPECT_NE(message.find("tensor 'w'"), std::string::npos) << message;
  EXPECT_NE(message.find("dimension 1 has 20"), std::string::npos) << message;
  EXPECT_NE(message.find("pad"), std::string::npos) << message;
  EXPECT_NE(message_of({.axis = 0}, 64, 20).find("dimension 0 has 20"), std::string::npos);
  EXPECT_NE(message_of({.block = {16, 16}}, 20, 64).find("dimension 0 has 20"), std::string::npos);
  EXPECT_NE(message_of({.hadamard = 128}, 16, 64).find("Hadamard size 128"), std::string::npos);
  EXPECT_NE(message_of({.block = {1, 32}}, 16, 64).find("use 1x16 or 16x16"), std::string::npos);
  const auto scaled = [&](Format format, Scaling scaling) {
    return message_of({.format = format, .block = default_block(format), .scaling = scaling}, 32, 128);
  };
  EXPECT_NE(scaled(Format::fp8, Scaling::four_six).find("use nearest"), std::string::npos);
  EXPECT_NE(scaled(Format::nvfp4, Scaling::up).find("use nearest, 4/6, search, eden"), std::string::npos);
  EXPECT_NE(scaled(Format::mxfp4, Scaling::search).find("use floor, up"), std::string::npos);
  EXPECT_EQ(scaled(Format::mxfp4, Scaling::up), "");
  EXPECT_NE(message_of({.rounding = Rounding::stochastic}, 1ll << 24, 1ll << 14).find("2^36"),
            std::string::npos);
}

TEST(QuantSpec, DescribesItselfInOneLine) {
  EXPECT_EQ(describe({.block = {16, 16},
                      .axis = 0,
                      .rounding = Rounding::stochastic,
                      .hadamard = 16,
                      .scaling = Scaling::four_six}),
            "nvfp4 16x16, axis 0, stochastic, hadamard 16, scale 4/6");
  EXPECT_EQ(describe({.format = Format::mxfp4, .block = {1, 32}, .scaling = Scaling::up}),
            "mxfp4 1x32, nearest, scale up");
}

TEST(QuantStats, SqnrIsInfiniteWithoutNoiseAndMergingAddsUp) {
  QuantStats a{.amax = 2, .measured = 10, .flushed = 1, .signal = 100, .noise = 1, .max_error = 0.5};
  const QuantStats b{.amax = 3, .measured = 30, .flushed = 3, .signal = 900, .noise = 0};
  EXPECT_TRUE(std::isinf(b.sqnr_db()));
  EXPECT_DOUBLE_EQ(a.sqnr_db(), 20.0);
  a.merge(b);
  EXPECT_EQ(a.amax, 3);
  EXPECT_DOUBLE_EQ(a.sqnr_db(), 30.0);
  EXPECT_DOUBLE_EQ(a.flushed_fraction(), 0.1);
}

}  // namespace
}  // namespace tetrad
