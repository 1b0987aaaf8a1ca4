// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a few paired runs can say. "No significant difference" is not equivalence: an arm is equivalent only
// if the data excludes a gap as large as a margin that was stated beforehand (two one-sided tests).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tetrad {

/// P(T <= t) for Student's t with `freedom` degrees of freedom.
double student_cdf(double t, double freedom);
/// Its inverse, 0 < p < 1.
double student_quantile(double p, double freedom);

/// The largest probability under which `events` or fewer of `trials` still have the chance `alpha`
/// (Clopper and Pearson): 0 of 10 at 5 % is 0.26.
double upper_bound(std::int64_t events, std::int64_t trials, double alpha);

/// Gaps of an arm to the reference, one per pair of runs that differ in nothing else.
struct PairedGap {
  std::int64_t pairs = 0;
  double mean = 0;
  double deviation = 0;  //!< standard deviation of one gap; NaN for fewer than two pairs
  double low = 0;        //!< lower end of the 1 - 2 alpha interval of both one-sided tests; NaN likewise
  double high = 0;
  double p_equivalent = 1;  //!< p-value of |gap| >= margin: small means equivalent
  double p_worse = 1;       //!< p-value of gap <= margin: small means worse
};

/// `margin` in the unit of the gaps.
PairedGap measure_gap(std::span<const double> gaps, double margin, double alpha);

enum class Verdict : std::uint8_t { reference, equivalent, worse, better, diverged, undecided };
std::string_view name_of(Verdict verdict);

/// Errs with a probability of at most alpha for "equivalent" and for "worse", whatever the true gap.
Verdict judge(const PairedGap& gap, double margin);

/// Pairs that would probably decide what is undecided, if mean and deviation stay as they are; 0: unknown,
/// or more than `most`.
std::int64_t pairs_to_decide(const PairedGap& gap, double margin, double alpha, std::int64_t most = 1000);

}  // namespace tetrad
