// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which quantizer each operand of each GEMM of each linear layer gets, and when. Recipes are tables.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tetrad/ops/linear_precision.h"
#include "tetrad/recipe/config.h"

namespace tetrad {

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

/// The text `pattern` with * for any run of characters.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace tetrad
