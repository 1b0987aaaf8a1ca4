// SPDX-License-Identifier: Apache-2.0
// Every quantizer, byte for byte, and decoding.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/recipe/recipe.h"
#include "tetrad/selftest/checks.h"
#include "tetrad/selftest/precisions.h"

namespace tetrad::selftest {
namespace {

constexpr RandomStream kRandom{.seed = 0x0123456789ABCDEF, .step = 3, .microbatch = 1, .tensor = 5};
constexpr SignMask kDrawnSigns{{0x3C6EF372, 0xDAA66D2B, 0x78DDE6E4, 0x1715609D}};

struct Extent {
  std::int64_t rows, cols;
};
constexpr Extent kWhole{128, 256};  //!< whole tiles, blocks and transforms: the kernels of training
constexpr Extent kRagged{48, 272};  //!< parts of blocks: the generic ones

bool can_quantize(const QuantSpec& spec, const Extent& x) {
  try {
    validate(spec, spec.axis == 1 ? x.rows : x.cols, spec.axis == 1 ? x.cols : x.rows, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Everything that a quantizer can be told, in all combinations that make sense.
std::vector<QuantSpec> all_specs() {
  std::vector<QuantSpec> specs;
  for (const Format format : {Format::nvfp4, Format::mxfp4, Format::fp8})
    for (const BlockShape& block :
         {BlockShape{1, 16}, BlockShape{16, 16}, BlockShape{1, 32}, BlockShape{32, 32}, BlockShape{1, 128},
          BlockShape{128, 128}, BlockShape::whole()})
      for (const int axis : {1, 0})
        for (const Rounding rounding :
             {Rounding::nearest, Rounding::stochastic, Rounding::stochastic_hardware})
          for (const int hadamard : {0, 16, 32, 128})
            for (const Scaling scaling :
                 {Scaling::standard, Scaling::four_six, Scaling::search, Scaling::eden, Scaling::up}) {
              const SignMask& signs = hadamard > 16 ? kDrawnSigns : kFixedSigns;
              const QuantSpec spec{format, block, axis, rounding, hadamard, signs, scaling};
              if (can_quantize(spec, kWhole)) specs.push_back(spec);
            }
  return specs;
}

/// As it falls out of an input that lies so.
CodeOrder order_of(const QuantSpec& spec) {
  return spec.axis == 1 ? CodeOrder::row_major : CodeOrder::col_major;
}

void note(Stage& stage, const QuantStats& stats) {
  stage.note("counts",
             {double(stats.non_finite), double(stats.blocks), double(stats.zero_scale_blocks),
              double(stats.measured), double(stats.flushed), double(stats.saturated)},
             kSameBytes);
  stage.note("errors", {stats.signal, stats.noise, stats.max_error}, 1e-5);
}

void quantize(Stage& stage, const QuantSpec& spec, const Extent& x, QuantizeOptions options) {
  options.random = kRandom;
  options.telemetry = Telemetry::full;  // each backend has its own samples
  note(stage, stage.backend().quantize(stage.draw(x.rows, x.cols, 2).view(), spec, options,
                                       stage.quantized_result(x.rows, x.cols)));
}

/// What is to be multiplied at once lies as each backend likes it: its values are compared.
void quantize_operand(Stage& stage, const QuantSpec& spec) {
  const auto& [rows, cols] = kWhole;
  QuantizedTensor& tensor = stage.poisoned_tensor(rows, cols);
  stage.backend().quantize(stage.draw(rows, cols, 2).view(), spec,
                           {.random = kRandom,
                            .order = stage.backend().preferred_order(spec),
                            .form = Form::operand,
                            .telemetry = Telemetry::none},
                           tensor);
  stage.backend().dequantize(tensor, stage.result_f32("values", tensor.rows, tensor.cols, kSameBytes).out());
}

/// Both copies that a linear layer needs of a matrix.
void quantize_pair(Stage& stage, const QuantSpec& along_features, const QuantSpec& along_tokens) {
  const auto& [rows, cols] = kWhole;
  const auto options = [&](const QuantSpec& spec) {
    return QuantizeOptions{.random = kRandom, .order = order_of(spec), .telemetry = Telemetry::none};
  };
  const QuantizeOptions first = options(along_features);
  const QuantizeOptions second = options(along_tokens);
  const Matrix& x = stage.draw(rows, cols, 2);
  stage.backend().quantize(x.view(), {along_features, first, stage.quantized_result(rows, cols)},
                           {along_tokens, second, stage.quantized_result(rows, cols)});
}

void quantize_part(Stage& stage) {
  quantize(stage, {.rounding = Rounding::stochastic}, kWhole,
           {.part = {.first_row = 16, .first_col = 32, .total_cols = 1024}, .amax = 7.5f});
}

/// With seed, step and microbatch in the backend's memory.
void quantize_with_key(Stage& stage) {
  constexpr RandomKey kKey{.seed = 99, .step = 12, .microbatch = 2};
  std::array<std::int32_t, sizeof(RandomKey) / sizeof(std::int32_t)> words;
  std::memcpy(words.data(), &kKey, sizeof(kKey));
  const auto* key = reinterpret_cast<const RandomKey*>(stage.integers(words).i32());
  quantize(stage, {.rounding = Rounding::stochastic}, kWhole, {.key = key});
}

void dequantize(Stage& stage, const QuantSpec& spec, CodeOrder order) {
  const QuantizedTensor& tensor = stage.quantized(stage.draw(kWhole.rows, kWhole.cols, 2), spec, order);
  stage.backend().dequantize(tensor, stage.result("values", tensor.rows, tensor.cols, kSameBytes).out());
}

}  // namespace

std::vector<Check> quantizer_checks() {
  std::vector<Check> checks;
  for (const QuantSpec& spec : all_specs()) {
    const std::string name = describe(spec);
    for (const Storage& storage : {Storage{}, Storage{DType::f32}, Storage{DType::f32, true}})
      checks.push_back({"quantize", name, storage,
                        [=](Stage& stage) { quantize(stage, spec, kWhole, {.order = order_of(spec)}); },
                        storage.dtype == DType::bf16 && spec.rounding != Rounding::stochastic_hardware});
    if (can_quantize(spec, kRagged))
      checks.push_back({"quantize", name + ", ragged", {DType::bf16, true}, [=](Stage& stage) {
                          quantize(stage, spec, kRagged, {});
                        }});
    checks.push_back(
        {"quantize", name + ", operand", {}, [=](Stage& stage) { quantize_operand(stage, spec); }});
    if (spec.rounding == Rounding::nearest && spec.hadamard == 0)
      for (const CodeOrder order : {CodeOrder::row_major, CodeOrder::col_major})
        for (const DType dtype : {DType::bf16, DType::f32})
          checks.push_back({"dequantize",
                            name + (order == CodeOrder::row_major ? "" : ", col_major"),
                            {dtype, false},
                            [=](Stage& stage) { dequantize(stage, spec, order); },
                            dtype == DType::bf16});
  }
  checks.push_back({"quantize", "part of a tensor", {}, quantize_part, true});
  checks.push_back({"quantize", "key in the backend's memory", {}, quantize_with_key, true});
  for (const NamedPrecision& named : precisions())
    for (const auto& [features, tokens] :
         {std::pair{Operand::fprop_x, Operand::wgrad_x}, std::pair{Operand::dgrad_dy, Operand::wgrad_dy}}) {
      const auto& first = named.precision[features];
      const auto& second = named.precision[tokens];
      if (first && second)
        checks.push_back(
            {"quantize pair",
             fmt::format("{} and {} of {}", tetrad::name_of(features), tetrad::name_of(tokens), named.name),
             {},
             [first = *first, second = *second](Stage& stage) { quantize_pair(stage, first, second); },
             true});
    }
  return checks;
}

}  // namespace tetrad::selftest
