// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tetrad {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// Where an increasing function crosses zero, to the last bit or so.
template <typename Function>
double find_root(double low, double high, const Function& increasing) {
  constexpr int kHalvings = 80;  // more than a double has bits
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (increasing(middle) < 0 ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

/// The continued fraction of the incomplete beta function, by Lentz's method: converges fast for
/// x < (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr int kTerms = 10'000;
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / not_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m < kTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (const double term : {even, odd}) {
      d = 1 / not_zero(1 + term * d);
      c = not_zero(1 + term / c);
      factor = c * d;
      result *= factor;
    }
    if (std::abs(factor - 1) < 1e-15) break;
  }
  return result;
}

double log_gamma(double x) {
  return std::lgamma(x);  // NOLINT(concurrency-mt-unsafe): it shares the sign, which nobody reads
}

/// I_x(a, b): the probability that a variable of the beta distribution is at most x.
double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
  return 1 - front * beta_fraction(1 - x, b, a) / b;
}

/// P(T >= (mean - at) / error): how likely so large a mean is if the true gap is `at`.
double tail_above(double mean, double at, double error, double freedom) {
  if (error == 0) return mean > at ? 0 : 1;
  return student_cdf((at - mean) / error, freedom);
}

}  // namespace

double student_cdf(double t, double freedom) {
  const double tail = incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double freedom) {
  double edge = 1;
  while (student_cdf(edge, freedom) < std::max(p, 1 - p)) edge *= 2;
  return find_root(-edge, edge, [&](double t) { return student_cdf(t, freedom) - p; });
}

double upper_bound(std::int64_t events, std::int64_t trials, double alpha) {
  if (events >= trials) return 1;
  const auto a = static_cast<double>(events + 1);
  const auto b = static_cast<double>(trials - events);
  return find_root(0, 1, [&](double p) { return incomplete_beta(p, a, b) - (1 - alpha); });
}

PairedGap measure_gap(std::span<const double> gaps, double margin, double alpha) {
  PairedGap result;
  result.pairs = static_cast<std::int64_t>(gaps.size());
  const auto count = static_cast<double>(gaps.size());
  result.mean = gaps.empty() ? kNothing : std::accumulate(gaps.begin(), gaps.end(), 0.0) / count;
  result.deviation = result.low = result.high = kNothing;
  if (gaps.size() < 2) return result;
  double squares = 0;
  for (const double gap : gaps) squares += (gap - result.mean) * (gap - result.mean);
  const double freedom = count - 1;
  result.deviation = std::sqrt(squares / freedom);
  const double error = result.deviation / std::sqrt(count);
  const double reach = student_quantile(1 - alpha, freedom) * error;
  result.low = result.mean - reach;
  result.high = result.mean + reach;
  result.p_worse = tail_above(result.mean, margin, error, freedom);
  result.p_equivalent = std::max(tail_above(-result.mean, -margin, error, freedom),
                                 tail_above(result.mean, -margin, error, freedom));
  return result;
}

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"reference", "equivalent", "worse",
                                         "better",    "diverged",   "undecided"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Verdict judge(const PairedGap& gap, double margin) {
  if (gap.pairs < 2) return Verdict::undecided;
  if (gap.low > -margin && gap.high < margin) return Verdict::equivalent;
  if (gap.low > margin) return Verdict::worse;
  if (gap.high < -margin) return Verdict::better;
  return Verdict::undecided;
}

std::int64_t pairs_to_decide(const PairedGap& gap, double margin, double alpha, std::int64_t most) {
  if (gap.pairs < 2) return 0;
  const double distance = std::abs(margin - std::abs(gap.mean));
  for (std::int64_t pairs = gap.pairs + 1; pairs <= most; ++pairs) {
    const auto count = static_cast<double>(pairs);
    if (student_quantile(1 - alpha, count - 1) * gap.deviation / std::sqrt(count) < distance) return pairs;
  }
  return 0;
}

}  // namespace tetrad
