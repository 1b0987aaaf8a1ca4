// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a quantized backward pass does to the gradient: its bias, which adds up from step to step, and its
// variance, which averages out.
//
// The reference g is the gradient of the same quantized forward pass, with a backward pass that quantizes
// nothing and multiplies by what the forward pass multiplied, Q(W) and Q(x). Draws g_1 … g_D differ in their
// random numbers alone. With e_k = g_k - g,
//
//   bias²    = mean over k ≠ l of ⟨e_k, e_l⟩ / |g|²     since draws are independent, E⟨e_k, e_l⟩ = |E e|²
//   variance = mean of |e_k|² / |g|² - bias²
//
// and since |Σ e_k|² = Σ |e_k|² + Σ_{k≠l} ⟨e_k, e_l⟩, the sum over pairs needs no pairs. A bias of zero is
// measured as something around zero, also below.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tetrad/eval/gradients.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

/// Relative to |g|².
struct GradientNoise {
  double bias = 0;  //!< squared
  double variance = 0;
};

/// Sums over the draws of one microbatch, of one parameter or of several as one vector.
struct DrawSums {
  double reference = 0;   //!< |g|²
  double deviations = 0;  //!< Σ |e_k|²
  double of_sum = 0;      //!< |Σ e_k|²

  void add(const DrawSums& other);
  GradientNoise noise(std::int64_t draws) const;
};

/// The same forward pass as at this point of `recipe`, and a backward pass that quantizes nothing. Nothing if
/// there is none: a transform of fprop's operands is of no use to other products.
std::optional<Recipe> without_backward_quantizers(const Recipe& recipe, Decoder& decoder, double progress);

struct NoiseProbe {
  Communicator& ranks;  //!< share the microbatches; all get the same results, which are those of one
  const Recipe& recipe;
  const Recipe& reference;  //!< without_backward_quantizers()
  std::span<const Microbatch> batches;
  std::int64_t draws = 2;            //!< at least two
  Pass pass;                         //!< seed, step and progress: where in the run it is
  std::function<void()> after_pass;  //!< of this rank; may throw to stop
};

/// By microbatch and parameter. 1 + `draws` passes for each microbatch; two more gradients in memory.
std::vector<std::vector<DrawSums>> measure_gradient_noise(Decoder& decoder, const NoiseProbe& probe);

}  // namespace tetrad
