// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which units to keep, from what was measured of each alone; and whether the whole set is worth it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tetrad/inspect/levels.h"
#include "tetrad/inspect/probes.h"

namespace tetrad {

/// What one set of kept units takes away of another's error.
struct Gain {
  Estimate gradient_error;
  Estimate loss;  //!< nats
};

struct Candidate {
  double share = 0;         //!< fraction of the linear layers' FLOP
  Gain bf16;                //!< what keeping it alone gains
  std::optional<Gain> fp8;  //!< nothing: the recipe is not finer than FP8
};

/// FP8 takes half the time of BF16.
inline constexpr double kFp8Cost = 0.5;

/// The level of every candidate: nothing is kept where there were too few microbatches. Greedy by the gain in
/// gradient error for the cost, then, among those that have none above noise, by the gain in loss; `budget`
/// is the fraction of FLOP in BF16, of which FP8 takes half. FP8 is chosen where it gains at least nine
/// tenths of what BF16 does, or where only FP8 fits.
std::vector<Level> choose(std::span<const Candidate> candidates, double budget);

enum class Advice : std::uint8_t {
  better,      //!< less gradient error than today's set, or as much and less loss
  as_good,     //!< for less cost
  keep_today,  //!< neither
  none,        //!< there were too few microbatches to say anything
};

/// The loss counts only where gradients do not decide: weights fit the precision that they were trained in,
/// so that any change, a better precision too, makes it larger at first. `gain` of the suggested set over
/// today's; costs as fractions of FLOP in BF16.
Advice judge(const Gain& gain, double suggested_cost, double todays_cost);

}  // namespace tetrad
