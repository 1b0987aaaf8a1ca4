// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which quantizer each operand of each GEMM of each linear layer gets, and when. Recipes are tables.
//
// A linear layer y = x W^T is three products: fprop y = x W^T, dgrad dx = dy W, wgrad dW = dy^T x. Each has
// two operands, and each operand is described as its product consumes it (the reduction dimension last).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tetrad/ops/quantize.h"
#include "tetrad/recipe/config.h"

namespace tetrad {

enum class Operand : std::uint8_t { fprop_x, fprop_w, dgrad_dy, dgrad_w, wgrad_dy, wgrad_x };
inline constexpr int kOperands = 6;

/// "fprop.x", …: as configurations and metrics spell them.
std::string_view name_of(Operand operand);

/// What one linear layer does at one point of a run.
struct LinearPrecision {
  /// By Operand; nothing: the storage type, unquantized.
  std::array<std::optional<QuantSpec>, kOperands> operands;
  bool per_step_signs = false;  //!< of the Hadamard transform: drawn from the run's seed and the step

  const std::optional<QuantSpec>& operator[](Operand operand) const {
    return operands[static_cast<std::size_t>(operand)];
  }
  std::optional<QuantSpec>& operator[](Operand operand) {
    return operands[static_cast<std::size_t>(operand)];
  }

  /// Dgrad can use fprop's weight codes transposed: square blocks, nothing else different.
  bool weight_codes_shared() const;
};

/// A linear layer as recipes select it.
struct LayerId {
  std::string_view name;   //!< "blocks.3.qkv"
  std::int64_t block = 0;  //!< of the decoder
};

class Recipe {
 public:
  /// Throws Error for a configuration that makes no sense; `blocks` is the length of the model's pattern.
  Recipe(PrecisionConfig config, std::int64_t blocks);

  /// `progress` is the fraction of the token budget that has been trained on.
  LinearPrecision at(const LayerId& layer, double progress) const;

  struct Names {
    std::string_view forward, backward;
  };
  /// Of the recipes of the forward and the backward pass at that point.
  Names names_at(double progress) const;

  /// Whether the layer stays in the storage type whatever the schedule says.
  bool stays_high(const LayerId& layer, std::string_view recipe) const;
  /// Whether nothing of the layer is in four bits: high_precision.fp8 names it.
  bool stays_fp8(const LayerId& layer) const;

  const PrecisionConfig& config() const { return config_; }

 private:
  /// A recipe with the configuration's switches; base_spec() before what is said about single operands.
  LinearPrecision table(std::string_view recipe) const;
  QuantSpec base_spec(std::string_view recipe, Operand operand) const;

  PrecisionConfig config_;
  std::int64_t blocks_;
};

/// What activations and unquantized operands are stored as.
DType storage_type(const PrecisionConfig& config);

/// One line for people: "fprop x nvfp4 1x16 · w nvfp4 16x16 | …".
std::string describe(const LinearPrecision& precision, std::string_view storage);

/// The text `pattern` with * for any run of characters.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace tetrad
