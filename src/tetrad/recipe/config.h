// SPDX-License-Identifier: Apache-2.0
#pragma once
// Precision as one would write it in a configuration. A Recipe (recipe.h) is made from it.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

/// Every recipe; table.h has what they are.
inline constexpr std::array<std::string_view, 5> kRecipeNames = {"bf16", "fp8", "mxfp4", "nvfp4", "tetrad"};
/// Every format of an operand.
inline constexpr std::array<std::string_view, 4> kFormatNames = {"bf16", "fp8", "mxfp4", "nvfp4"};

/// Layers that stay in BF16: blocks counted from the ends, or by name ("blocks.3.*", "*.qkv", …; * matches
/// anything). And those that stay in FP8.
struct HighPrecisionConfig {
  std::optional<std::int64_t> first;  //!< nothing: what the recipe says
  std::optional<std::int64_t> last;
  std::vector<std::string> match;
  std::vector<std::string> fp8;  //!< what would be in four bits is in FP8 here; BF16 wins where both are said
  friend bool operator==(const HighPrecisionConfig&, const HighPrecisionConfig&) = default;
};

struct RhtConfig {
  std::optional<std::vector<std::string>>
      gemms;  //!< any of fprop, dgrad, wgrad; "none" in YAML is the empty list
  std::optional<std::int64_t> size;
  std::optional<std::string>
      signs;  //!< fixed | none | per-step | fresh; nothing: fresh with eden, else fixed
  friend bool operator==(const RhtConfig&, const RhtConfig&) = default;
};

/// How the scales of blocks are found. Nothing: as the recipe says.
struct ScaleConfig {
  std::optional<std::string> forward;   //!< NVFP4 operands of fprop: nearest | 4/6 | search
  std::optional<std::string> backward;  //!< NVFP4 operands of dgrad and wgrad: those, or eden
  std::optional<std::string> mxfp4;     //!< MXFP4 operands: up | floor
  friend bool operator==(const ScaleConfig&, const ScaleConfig&) = default;
};

/// One operand of one GEMM, said explicitly: everything not said stays as the recipe has it.
struct OperandConfig {
  std::optional<std::string> format;    //!< bf16, or a Format
  std::optional<std::string> block;     //!< 1x16 | 16x16 | …
  std::optional<std::string> rounding;  //!< nearest | stochastic | stochastic-hardware
  std::optional<std::int64_t> hadamard;
  std::optional<std::string> scale;   //!< nearest | 4/6 | search | eden (NVFP4), up | floor (MXFP4)
  std::optional<std::string> source;  //!< dgrad.w and wgrad.x: input | fprop
  friend bool operator==(const OperandConfig&, const OperandConfig&) = default;
};

/// From a fraction of the token budget on, the pass uses another recipe.
struct PrecisionSwitch {
  double at = 0;
  std::optional<std::string> forward;   //!< one of kRecipeNames
  std::optional<std::string> backward;  //!< nothing: unchanged
  friend bool operator==(const PrecisionSwitch&, const PrecisionSwitch&) = default;
};

struct PrecisionConfig {
  std::string recipe = "nvfp4";  //!< one of kRecipeNames
  HighPrecisionConfig high_precision;
  RhtConfig rht;
  std::optional<std::vector<std::string>>
      sr;                           //!< any of gradients, activations, weights; "none" is the empty list
  std::optional<bool> sr_hardware;  //!< u = r/256 as software for Blackwell does it
  std::optional<bool> weights_2d;
  ScaleConfig scale;
  std::optional<std::string> source;  //!< of W and x in the backward pass: input | fprop
  bool centre = false;                //!< x is quantized without its mean over the tokens
  /// Keys "fprop.x", "fprop.w", "dgrad.dy", "dgrad.w", "wgrad.dy", "wgrad.x".
  std::map<std::string, OperandConfig> operands;
  std::vector<PrecisionSwitch> schedule;
  std::string storage =
      "bf16";  //!< type of activations and unquantized operands: bf16, or f32 for checking gradients
  friend bool operator==(const PrecisionConfig&, const PrecisionConfig&) = default;
};

}  // namespace tetrad
