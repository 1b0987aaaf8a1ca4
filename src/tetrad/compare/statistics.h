// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a few runs of each arm can say. Every arm has one interval for its gap to the reference, and with
// probability 1 - alpha all intervals of a family hold at once; every verdict follows from them. "No
// significant difference" is not equivalence: an arm is equivalent only if its interval lies within a margin
// that was stated beforehand.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

/// P(T <= t) for Student's t with `freedom` degrees of freedom.
double student_cdf(double t, double freedom);
/// Its inverse, 0 < p < 1.
double student_quantile(double p, double freedom);

/// The largest probability under which `events` or fewer of `trials` still have the chance `alpha`
/// (Clopper and Pearson): 0 of 10 at 5 % is 0.26.
double upper_bound(std::int64_t events, std::int64_t trials, double alpha);

/// P(|T_1|, …, |T_k| <= t) for the gaps of `arms` arms to one reference with as many runs as each of them:
/// Student's t with `freedom` degrees of freedom, every two correlated by 1/2 (Dunnett).
double dunnett_cdf(double t, std::int64_t arms, double freedom);
/// Its inverse, 0 < p < 1.
double dunnett_quantile(double p, std::int64_t arms, double freedom);

/// What intervals and verdicts are made with.
struct Rules {
  double margin = 1.5;    //!< in the unit of the gaps
  double alpha = 0.05;    //!< probability that any interval of the family is wrong
  std::int64_t arms = 1;  //!< in the family: how many are compared with the same reference
};

/// Verdicts that are looked at before more runs are added get chances to be wrong each time. Of `planned`
/// looks each may use alpha / planned; later ones, of which nobody spoke, half of the one before. `look`
/// counts from 0.
double alpha_of_look(double alpha, std::int64_t planned, std::int64_t look);
/// Of all looks up to this one: the probability that any of them had a wrong verdict is at most that.
double alpha_spent(double alpha, std::int64_t planned, std::int64_t look);

/// Losses by arm and block. A block is what arms have in common, a seed or a trunk.
using Losses = std::vector<std::vector<double>>;

/// Chance: what is left of the losses when each arm and each block has a mean of its own.
struct Residual {
  double variance = 0;  //!< of one run; NaN without freedom
  double freedom = 0;
};

/// Pooled over arms and over `groups` of blocks, such as learning rates, which are no repetitions of each
/// other: each group has means of its own. An arm that equals another to the last bit adds nothing.
Residual pool(std::span<const Losses> groups);

/// Gap of an arm to the reference over blocks that both have.
struct PairedGap {
  std::int64_t pairs = 0;
  double mean = 0;
  double deviation = 0;  //!< standard deviation of one pair's gap; this to `high`: NaN if unknown
  double low = 0;        //!< ends of the interval
  double high = 0;
  double freedom = 0;
  double p_zero = 1;        //!< this and the next: the smallest alpha at which the interval excludes zero,
  double p_equivalent = 1;  //!< lies within the margin,
  double p_worse = 1;       //!< lies beyond it

  bool differs() const { return low > 0 || high < 0; }
};

/// Of a mean gap over pairs in so many groups, evenly spread.
PairedGap measure_gap(double mean, std::int64_t pairs, const Residual& residual, const Rules& rules);

enum class Verdict : std::uint8_t { reference, equivalent, worse, better, diverged, undecided };
std::string_view name_of(Verdict verdict);

/// By the interval and the margin alone.
Verdict judge(const PairedGap& gap, double margin);

/// Pairs, at least two, with which the interval has a chance of 80 % to keep clear of what lies `distance`
/// away from the gap, if gap and deviation stay as they are; 0: unknown, or more than `most`.
std::int64_t pairs_to_decide(const PairedGap& gap, double distance, const Rules& rules,
                             std::int64_t most = 1000);

}  // namespace tetrad
