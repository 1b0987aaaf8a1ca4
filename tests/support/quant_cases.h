// SPDX-License-Identifier: Apache-2.0
#pragma once
// The quantizers under test, in the terms of the engine and of the oracle.

#include <array>
#include <ostream>
#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::testing {

struct QuantCase {
  std::string name;
  QuantSpec spec;
};

/// So that a failing test is printed by its name.
// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
inline void PrintTo(const QuantCase& quantizer, std::ostream* out) { *out << quantizer.name; }

/// Formats, block shapes, roundings, transforms and scalings, alone and together.
inline std::vector<QuantCase> quant_cases() {
  constexpr BlockShape k1x16{1, 16}, k16x16{16, 16}, k1x32{1, 32}, k32x32{32, 32}, k1x128{1, 128},
      k128x128{128, 128};
  constexpr auto kSr = Rounding::stochastic;
  constexpr auto kFourSix = Scaling::four_six;
  constexpr auto kSearch = Scaling::search;
  constexpr auto kEden = Scaling::eden;
  constexpr SignMask kManySigns{{0x3C6EF372, 0xDAA66D2B, 0x78DDE6E4, 0x1715609D}};
  return {
      {"nvfp4", {.block = k1x16}},
      {"nvfp4_2d", {.block = k16x16}},
      {"nvfp4_sr", {.block = k1x16, .rounding = kSr}},
      {"nvfp4_sr_hardware", {.block = k1x16, .rounding = Rounding::stochastic_hardware}},
      {"nvfp4_2d_sr", {.block = k16x16, .rounding = kSr}},
      {"nvfp4_rht16", {.block = k1x16, .hadamard = 16}},
      {"nvfp4_rht16_sr", {.block = k1x16, .rounding = kSr, .hadamard = 16}},
      {"nvfp4_rht16_unsigned", {.block = k1x16, .hadamard = 16, .signs = kNoSigns}},
      {"nvfp4_rht2", {.block = k1x16, .hadamard = 2}},
      {"nvfp4_rht4", {.block = k1x16, .hadamard = 4}},
      {"nvfp4_rht8", {.block = k1x16, .hadamard = 8}},
      {"nvfp4_rht32", {.block = k1x16, .hadamard = 32}},
      {"nvfp4_rht64", {.block = k1x16, .hadamard = 64}},
      {"nvfp4_rht128_sr", {.block = k1x16, .rounding = kSr, .hadamard = 128}},
      {"nvfp4_2d_rht16", {.block = k16x16, .hadamard = 16}},
      {"nvfp4_4_6", {.block = k1x16, .scaling = kFourSix}},
      {"nvfp4_2d_4_6", {.block = k16x16, .scaling = kFourSix}},
      {"nvfp4_rht16_sr_4_6", {.block = k1x16, .rounding = kSr, .hadamard = 16, .scaling = kFourSix}},
      {"nvfp4_2d_rht32_sr_4_6", {.block = k16x16, .rounding = kSr, .hadamard = 32, .scaling = kFourSix}},
      {"nvfp4_search", {.block = k1x16, .scaling = kSearch}},
      {"nvfp4_2d_search", {.block = k16x16, .scaling = kSearch}},
      {"nvfp4_rht16_search", {.block = k1x16, .hadamard = 16, .scaling = kSearch}},
      {"nvfp4_rht64_sr_search", {.block = k1x16, .rounding = kSr, .hadamard = 64, .scaling = kSearch}},
      {"nvfp4_rht128_signs", {.block = k1x16, .hadamard = 128, .signs = kManySigns}},
      {"nvfp4_eden", {.block = k1x16, .hadamard = 128, .signs = kManySigns, .scaling = kEden}},
      {"nvfp4_eden_rht16", {.block = k1x16, .hadamard = 16, .scaling = kEden}},
      {"nvfp4_eden_rht64", {.block = k1x16, .hadamard = 64, .scaling = kEden}},
      {"mxfp4", {.format = Format::mxfp4, .block = k1x32}},
      {"mxfp4_sr", {.format = Format::mxfp4, .block = k1x32, .rounding = kSr}},
      {"mxfp4_rht32_sr", {.format = Format::mxfp4, .block = k1x32, .rounding = kSr, .hadamard = 32}},
      {"mxfp4_up", {.format = Format::mxfp4, .block = k1x32, .scaling = Scaling::up}},
      {"mxfp4_2d", {.format = Format::mxfp4, .block = k32x32}},
      {"mxfp4_2d_sr_up", {.format = Format::mxfp4, .block = k32x32, .rounding = kSr, .scaling = Scaling::up}},
      {"mxfp4_rht32_sr_up",
       {.format = Format::mxfp4, .block = k1x32, .rounding = kSr, .hadamard = 32, .scaling = Scaling::up}},
      {"mxfp4_rht16", {.format = Format::mxfp4, .block = k1x32, .hadamard = 16}},
      {"fp8", {.format = Format::fp8, .block = k1x128}},
      {"fp8_sr", {.format = Format::fp8, .block = k1x128, .rounding = kSr}},
      {"fp8_2d", {.format = Format::fp8, .block = k128x128}},
      {"fp8_2d_rht16_sr", {.format = Format::fp8, .block = k128x128, .rounding = kSr, .hadamard = 16}},
      {"fp8_tensor", {.format = Format::fp8, .block = BlockShape::whole()}},
      {"fp8_tensor_sr", {.format = Format::fp8, .block = BlockShape::whole(), .rounding = kSr}},
  };
}

inline oracle::Spec to_oracle(const QuantSpec& spec) {
  return {static_cast<oracle::Format>(spec.format),     spec.block.rows, spec.block.cols,
          static_cast<oracle::Rounding>(spec.rounding), spec.hadamard,   std::to_array(spec.signs.word),
          static_cast<oracle::Scaling>(spec.scaling)};
}

inline oracle::Random to_oracle(const RandomStream& random) {
  return {random.seed, random.step, random.microbatch, random.tensor};
}

}  // namespace tetrad::testing
