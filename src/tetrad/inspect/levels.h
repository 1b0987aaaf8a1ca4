// SPDX-License-Identifier: Apache-2.0
#pragma once
// What can be kept out of four bits, one at a time: linear layers or whole blocks, and at which precision.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/model/decoder.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

enum class Level : std::uint8_t { quantized, fp8, bf16 };  //!< quantized: as the recipe says

/// "quantized", "fp8", "bf16".
std::string_view name_of(Level level);

/// The level of a layer at `precision` that is at `base` where nothing is kept.
Level level_of(const LinearPrecision& precision, const LinearPrecision& base);

/// Whether any operand is in four bits, so that FP8 would be better.
bool has_four_bits(const LinearPrecision& precision);
bool is_quantized(const LinearPrecision& precision);

/// What is probed, and kept, as one.
struct Unit {
  std::string name;  //!< "blocks.3.qkv", or "blocks.3"
  std::int64_t block = 0;
  std::vector<std::string> layers;
  std::size_t first = 0;     //!< index of the first among all layers
  std::int64_t weights = 0;  //!< values
  double share = 0;          //!< fraction of the FLOP of all linear layers, forward and backward
};

std::vector<Unit> make_units(Decoder& decoder, bool by_block);

/// The list for a configuration that has these layers, and no others, at these levels; where a block is at
/// one level as a whole, its name stands for its layers.
HighPrecisionConfig keep(std::span<const Unit> layers, std::span<const Level> levels);

}  // namespace tetrad
