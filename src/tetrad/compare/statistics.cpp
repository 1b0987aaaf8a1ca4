// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace tetrad {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

constexpr int kAllBits = 80;  // halvings: more than a double has bits

/// Where an increasing function crosses zero.
template <typename Function>
double find_root(double low, double high, const Function& increasing, int halvings = kAllBits) {
  for (int i = 0; i < halvings; ++i) {
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

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// The probability that |X_i - X_0| <= sqrt(2) reach for every one of the arms, all of them normal.
double within_of_all(double reach, std::int64_t arms) {
  constexpr double kStep = 0.4;
  constexpr int kSteps = 20;  // as far as 8 standard deviations
  const double width = std::numbers::sqrt2 * reach;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = kStep * i;
    const double one = normal_cdf(x + width) - normal_cdf(x - width);
    const double weight = i == 0 ? 1 : 2;  // the other side is the same
    sum += weight * std::exp(-x * x / 2) * std::pow(one, static_cast<double>(arms));
  }
  return sum * kStep * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Of what the means of arms and blocks leave over.
double residual_squares(const Losses& arms) {
  const std::size_t blocks = arms[0].size();
  std::vector<double> means(blocks, 0.0);
  for (const std::vector<double>& arm : arms)
    for (std::size_t i = 0; i < blocks; ++i) means[i] += arm[i] / static_cast<double>(arms.size());
  const double overall = mean_of(means);
  double squares = 0;
  for (const std::vector<double>& arm : arms) {
    const double mean = mean_of(arm);
    for (std::size_t i = 0; i < blocks; ++i) {
      const double residual = arm[i] - mean - means[i] + overall;
      squares += residual * residual;
    }
  }
  return squares;
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

double dunnett_cdf(double t, std::int64_t arms, double freedom) {
  if (t <= 0) return 0;
  if (arms <= 1) return 1 - 2 * student_cdf(-t, freedom);
  // T_i = (X_i - X_0) / (sqrt(2) S): given X_0 = x and S = s, the arms are independent. The trapezoidal rule
  // converges fast over x, where all falls off like a normal density; s is the square of the variable, since
  // few degrees of freedom want fine steps near zero.
  constexpr int kSteps = 100;
  const double spread = 9 / std::sqrt(2 * freedom);
  const double from = std::sqrt(std::max(0.0, 1 - spread));
  const double step = (std::sqrt(1 + spread) - from) / kSteps;
  const double log_scale =
      std::log(2.0) + freedom / 2 * std::log(freedom / 2) - log_gamma(freedom / 2);  // of the density of S
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double root = from + step * i;
    const double s = root * root;
    if (s == 0) continue;  // the density times 2 root is zero there
    const double density = std::exp(log_scale + (freedom - 1) * std::log(s) - freedom / 2 * s * s) * 2 * root;
    const double simpson = i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2;
    sum += simpson * density * within_of_all(t * s, arms);
  }
  return std::min(1.0, sum * step / 3);
}

double dunnett_quantile(double p, std::int64_t arms, double freedom) {
  constexpr int kHalvings = 40;  // as exact as the integral is
  double edge = 1;
  while (dunnett_cdf(edge, arms, freedom) < p) edge *= 2;
  return find_root(
      0, edge, [&](double t) { return dunnett_cdf(t, arms, freedom) - p; }, kHalvings);
}

double alpha_of_look(double alpha, std::int64_t planned, std::int64_t look) {
  const double each = alpha / static_cast<double>(planned);
  return look < planned ? each : std::ldexp(each, static_cast<int>(planned - 1 - look));
}

double alpha_spent(double alpha, std::int64_t planned, std::int64_t look) {
  double spent = 0;
  for (std::int64_t i = 0; i <= look; ++i) spent += alpha_of_look(alpha, planned, i);
  return spent;
}

Residual pool(std::span<const Losses> groups) {
  double squares = 0;
  double freedom = 0;
  for (const Losses& all : groups) {
    Losses arms;
    for (const std::vector<double>& arm : all)
      if (std::ranges::find(arms, arm) == arms.end()) arms.push_back(arm);
    // Copies alone still tell that chance has no part in this.
    if (arms.size() < 2) arms = all;
    if (arms.size() < 2 || arms[0].size() < 2) continue;
    squares += residual_squares(arms);
    freedom += static_cast<double>((arms.size() - 1) * (arms[0].size() - 1));
  }
  return {freedom > 0 ? squares / freedom : kNothing, freedom};
}

PairedGap measure_gap(double mean, std::int64_t pairs, const Residual& residual, const Rules& rules) {
  PairedGap gap;
  gap.pairs = pairs;
  gap.mean = mean;
  gap.freedom = residual.freedom;
  gap.deviation = std::sqrt(2 * residual.variance);
  gap.low = gap.high = kNothing;
  if (residual.freedom <= 0) return gap;
  const double error = gap.deviation / std::sqrt(static_cast<double>(pairs));
  const double reach =
      error > 0 ? error * dunnett_quantile(1 - rules.alpha, rules.arms, residual.freedom) : 0;
  gap.low = mean - reach;
  gap.high = mean + reach;
  const auto level = [&](double distance) {  // at which the interval reaches so far
    if (distance <= 0) return 1.0;
    return error > 0 ? 1 - dunnett_cdf(distance / error, rules.arms, residual.freedom) : 0;
  };
  gap.p_zero = level(std::abs(mean));
  gap.p_equivalent = level(rules.margin - std::abs(mean));
  gap.p_worse = level(mean - rules.margin);
  return gap;
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

std::int64_t pairs_to_decide(const PairedGap& gap, double distance, const Rules& rules, std::int64_t most) {
  constexpr double kPower = 0.8;
  if (!(gap.freedom > 0) || !(distance > 0)) return 0;
  // Pairs bring as much freedom as those so far did.
  const double freedom_each = gap.pairs > 1 ? gap.freedom / static_cast<double>(gap.pairs - 1) : 1;
  const auto suffice = [&](std::int64_t pairs) {
    const double freedom = freedom_each * static_cast<double>(pairs - 1);
    const double reach =
        dunnett_quantile(1 - rules.alpha, rules.arms, freedom) + student_quantile(kPower, freedom);
    return reach * gap.deviation / std::sqrt(static_cast<double>(pairs)) < distance;
  };
  std::int64_t enough = 2;
  while (enough < most && !suffice(enough)) enough = std::min(most, 2 * enough);
  if (!suffice(enough)) return 0;
  std::int64_t few = enough / 2;
  while (enough - few > 1) {
    const std::int64_t middle = few + (enough - few) / 2;
    (middle >= 2 && suffice(middle) ? enough : few) = middle;
  }
  return enough;
}

}  // namespace tetrad
