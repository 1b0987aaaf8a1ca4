// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which quantizer each operand of each GEMM of each linear layer gets, and when. Recipes are tables.

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tetrad/ops/linear_precision.h"
#include "tetrad/recipe/config.h"

namespace tetrad {

/// A linear layer as recipes select it.
struct LayerId {
  std::string_view name;     //!< "blocks.3.qkv"
  std::int64_t block = 0;    //!< index in the decoder
  std::int64_t outputs = 0;  //!< along which dgrad transforms; 0: a multiple of every transform's size
};

class Recipe {
 public:
  /// Throws Error for a configuration that makes no sense; `blocks` is the length of the model's pattern.
  Recipe(PrecisionConfig config, std::int64_t blocks);

  /// `progress` is the fraction of the token budget that has been trained on. Everything was resolved when
  /// the recipe was made: this only looks up which of a few results the layer gets. Valid as long as the
  /// recipe.
  const LinearPrecision& at(const LayerId& layer, double progress) const;

  struct Names {
    std::string_view forward, backward;
  };
  /// The recipes of the forward and the backward pass at that point.
  Names names_at(double progress) const { return phase_at(progress).names; }

  /// Whether nothing of the layer is in four bits: high_precision.fp8 names it.
  bool stays_fp8(const LayerId& layer) const;

  const PrecisionConfig& config() const { return config_; }

 private:
  /// Blocks outside of [first, end) stay in the storage type.
  struct QuantizedBlocks {
    std::int64_t first, end;
    bool contains(std::int64_t block) const { return block >= first && block < end; }
  };
  /// The time between two switches of the schedule.
  struct Phase {
    Names names;
    QuantizedBlocks forward, backward;
    /// Layers differ in whether their forward pass is quantized, whether their backward pass is, whether FP8
    /// is the least, and in the largest transform along their outputs: 16, 32, 64 or 128.
    struct Kind {
      bool in_forward, in_backward, fp8;
      int transform;
    };
    std::array<LinearPrecision, 32> precisions;

    LinearPrecision& precision(const Kind& kind) { return precisions[index(kind)]; }
    const LinearPrecision& precision(const Kind& kind) const { return precisions[index(kind)]; }
    static std::size_t index(const Kind& kind) {
      const auto transform =
          static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(kind.transform)));
      return (transform - 4) * 8 + (kind.in_forward ? 4U : 0U) + (kind.in_backward ? 2U : 0U) +
             (kind.fp8 ? 1U : 0U);
    }
  };

  const Phase& phase_at(double progress) const;
  Phase make_phase(std::string_view forward, std::string_view backward) const;
  QuantizedBlocks quantized_blocks(std::string_view recipe) const;
  /// A recipe with the configuration's switches; base_spec() before what is said about single operands.
  LinearPrecision table(std::string_view recipe) const;
  QuantSpec base_spec(std::string_view recipe, Operand operand) const;
  /// Whether MS-EDEN was asked for where an operand is in this format.
  bool is_eden(Operand operand, const std::optional<Format>& format) const;
  /// Transforms of dgrad that MS-EDEN brought along are at most that large.
  void fit_transforms(LinearPrecision& precision, int largest) const;
  /// What W of dgrad or x of wgrad are, given all operands.
  Source source_of(Operand operand, const LinearPrecision& precision) const;
  /// What configuration or recipe say about the scales of an operand in this format and these blocks.
  Scaling scaling_of(std::string_view recipe, Operand operand, const QuantSpec& spec) const;
  void apply_override(std::string_view recipe, Operand operand, std::optional<QuantSpec>& spec) const;

  PrecisionConfig config_;
  std::int64_t blocks_;
  std::vector<Phase> phases_;  //!< one more than the schedule has switches
};

/// What activations and unquantized operands are stored as.
DType storage_type(const PrecisionConfig& config);

/// The text `pattern` with * for any run of characters.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace tetrad
