// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/figure.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> sorted_finite(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::sort(values.begin(), values.end());
  return values;
}

double quantile(const std::vector<double>& sorted, double fraction) {
  return sorted[static_cast<std::size_t>(fraction * static_cast<double>(sorted.size() - 1))];
}

/// A little air around the values; never empty, also when they are all the same.
Range padded(double low, double high) {
  const double span = std::max({high - low, 1e-3 * std::abs(low), 1e-6});
  return {low - 0.04 * span, high + 0.04 * span};
}

/// Early losses are several times the later ones and would flatten everything that is of interest, and so
/// would a run that diverges: the range ends at a quantile, and never far above where the runs began.
Range loss_range(const Figure& figure) {
  std::vector<double> all;
  std::vector<double> raw;
  double start = std::numeric_limits<double>::infinity();
  for (const Series& series : figure.series) {
    const std::vector<double>& y = series.smoothed.y;
    all.insert(all.end(), y.begin(), y.end());
    raw.insert(raw.end(), series.loss.y.begin(), series.loss.y.end());
    const auto first = std::find_if(y.begin(), y.end(), [](double value) { return std::isfinite(value); });
    if (first != y.end()) start = std::min(start, *first);
  }
  all = sorted_finite(std::move(all));
  const double low = std::min(all.front(), quantile(sorted_finite(std::move(raw)), 0.01));
  double high = quantile(all, 0.95);
  if (high > 1.5 * start && 1.5 * start > low) high = 1.5 * start;
  Range range = padded(low, high);
  // References belong into the picture unless they would squeeze the curves into half of it.
  const double span = range.high - range.low;
  const Range around{range.low - span / 2, range.high + span / 2};
  for (const Reference& reference : figure.references) {
    if (!around.contains(reference.value)) continue;
    range.low = std::min(range.low, reference.value - 0.12 * span);
    range.high = std::max(range.high, reference.value + 0.12 * span);
  }
  return range;
}

Range gap_range(const Figure& figure) {
  std::vector<double> all;
  for (const Series& series : figure.series) all.insert(all.end(), series.gap.y.begin(), series.gap.y.end());
  all = sorted_finite(std::move(all));
  if (all.empty()) return {-1, 1};
  // A run that diverges, or falls a few steps later than the first at the start, must not flatten the rest.
  const double low = std::max(all.front(), 1.5 * quantile(all, 0.02));
  const double high = std::min(all.back(), 1.5 * quantile(all, 0.98));
  return padded(std::min(0.0, low), std::max(0.0, high));
}

/// The one held-out source that every run was evaluated on; nothing if there is another.
std::optional<std::string> common_heldout(std::span<const RunMetrics> runs) {
  for (const RunMetrics& run : runs)
    if (run.evals.size() != 1 || run.evals.begin()->first != runs[0].evals.begin()->first)
      return std::nullopt;
  return runs[0].evals.begin()->first;
}

Series make_series(const RunMetrics& run, std::int64_t window, const std::optional<std::string>& heldout) {
  Series series{.name = run.path, .recipe = run.recipe, .loss = {}, .smoothed = {}, .gap = {}, .heldout = {}};
  for (const TrainPoint& point : run.train) {
    series.loss.x.push_back(static_cast<double>(point.tokens));
    series.loss.y.push_back(point.loss);
  }
  series.smoothed = {series.loss.x, moving_average(series.loss.y, window)};
  if (!heldout) return series;
  for (const EvalPoint& point : run.evals.at(*heldout)) {
    series.heldout.x.push_back(static_cast<double>(point.tokens));
    series.heldout.y.push_back(point.loss);
  }
  return series;
}

}  // namespace

std::vector<double> moving_average(std::span<const double> values, std::int64_t window) {
  TETRAD_CHECK(window >= 1, "a moving average over {} steps: at least 1 is needed", window);
  // Sums within blocks as long as the window, from the left and from the right: every window is one piece of
  // each. Nothing is subtracted, so a loss of 1e30 spoils only the windows that it is in.
  struct Sum {
    double total = 0;
    std::int64_t count = 0;
    void add(double value) {
      if (!std::isfinite(value)) return;
      total += value;
      ++count;
    }
  };
  const auto size = static_cast<std::int64_t>(values.size());
  const std::int64_t length = std::min(window, 2 * size + 1);
  const std::int64_t before = (length - 1) / 2;
  std::vector<Sum> from_left(values.size());
  std::vector<Sum> from_right(values.size());
  const auto at = [](auto& sequence, std::int64_t i) -> auto& {
    return sequence[static_cast<std::size_t>(i)];
  };
  for (std::int64_t i = 0; i < size; ++i) {
    if (i % length != 0) at(from_left, i) = at(from_left, i - 1);
    at(from_left, i).add(at(values, i));
  }
  for (std::int64_t i = size - 1; i >= 0; --i) {
    if (i + 1 < size && (i + 1) % length != 0) at(from_right, i) = at(from_right, i + 1);
    at(from_right, i).add(at(values, i));
  }
  std::vector<double> means(values.size(), kNaN);
  for (std::int64_t i = 0; i < size; ++i) {
    if (!std::isfinite(at(values, i))) continue;
    const std::int64_t first = std::max<std::int64_t>(0, i - before);
    const std::int64_t last = std::min(size - 1, i - before + length - 1);
    Sum sum = at(from_left, last);
    if (first / length != last / length) {
      sum.total += at(from_right, first).total;
      sum.count += at(from_right, first).count;
    } else if (first % length != 0) {
      sum = at(from_right, first);  // only at the right end, where the window reaches to the last point
    }
    const double mean = sum.total / static_cast<double>(sum.count);
    at(means, i) = std::isfinite(mean) ? mean : kNaN;
  }
  return means;
}

Curve relative_gap(const Curve& baseline, const Curve& curve) {
  Curve gap;
  std::size_t right = 0;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const double x = curve.x[i];
    while (right < baseline.x.size() && baseline.x[right] < x) ++right;
    if (right == baseline.x.size()) break;
    if (baseline.x[right] > x && right == 0) continue;
    double expected = baseline.y[right];
    if (baseline.x[right] > x) {
      const double x0 = baseline.x[right - 1];
      const double y0 = baseline.y[right - 1];
      expected = y0 + (baseline.y[right] - y0) * ((x - x0) / (baseline.x[right] - x0));
    }
    const double percent = expected > 0 ? 100 * (curve.y[i] - expected) / expected : kNaN;
    gap.x.push_back(x);
    gap.y.push_back(std::isfinite(percent) ? percent : kNaN);
  }
  return gap;
}

Curve thin(const Curve& curve, std::size_t buckets) {
  if (curve.x.size() <= 2 * buckets) return curve;
  const Range range{curve.x.front(), curve.x.back()};
  Curve result;
  const auto keep = [&](std::size_t i) {
    result.x.push_back(curve.x[i]);
    result.y.push_back(curve.y[i]);
  };
  const auto bucket_of = [&](std::size_t i) {
    return static_cast<std::size_t>(range.fraction(curve.x[i]) * static_cast<double>(buckets));
  };
  for (std::size_t begin = 0, end = 0; begin < curve.x.size(); begin = end) {
    std::optional<std::size_t> lowest;
    std::optional<std::size_t> highest;
    for (end = begin; end < curve.x.size() && bucket_of(end) == bucket_of(begin); ++end) {
      if (!std::isfinite(curve.y[end])) continue;
      if (!lowest || curve.y[end] < curve.y[*lowest]) lowest = end;
      if (!highest || curve.y[end] > curve.y[*highest]) highest = end;
    }
    if (!lowest) {
      keep(begin);
      continue;
    }
    keep(std::min(*lowest, *highest));
    if (lowest != highest) keep(std::max(*lowest, *highest));
  }
  return result;
}

Ticks make_ticks(const Range& range, int count) {
  const double rough = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double multiple : {5.0, 2.0, 1.0})
    if (multiple * power >= rough) step = multiple * power;
  Ticks ticks;
  ticks.decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  // Whole multiples, so that there is 0 and not 1e-17.
  for (double i = std::ceil(range.low / step); i * step <= range.high; ++i)
    ticks.values.push_back(i * step + 0.0);  // + 0.0: never -0
  return ticks;
}

Figure make_figure(std::span<const RunMetrics> runs, const References& references, std::int64_t window) {
  TETRAD_CHECK(!runs.empty() && runs.size() <= kMaxSeries,
               "{} runs: from 1 to {} can be told apart in one picture", runs.size(), kMaxSeries);
  Figure figure;
  std::size_t longest = 0;
  for (const RunMetrics& run : runs) longest = std::max(longest, run.train.size());
  figure.window = window > 0 ? window : std::max<std::int64_t>(1, static_cast<std::int64_t>(longest / 50));

  const std::optional<std::string> heldout = common_heldout(runs);
  for (const RunMetrics& run : runs) {
    figure.series.push_back(make_series(run, figure.window, heldout));
    if (figure.series.size() > 1)
      figure.series.back().gap = relative_gap(figure.series[0].smoothed, figure.series.back().smoothed);
  }
  if (references.unigram_entropy)
    figure.references.push_back({"unigram entropy", *references.unigram_entropy});
  if (references.entropy) figure.references.push_back({"entropy of the source", *references.entropy});

  std::vector<double> finite;
  figure.tokens.high = 0;
  for (const Series& series : figure.series) {
    finite.insert(finite.end(), series.smoothed.y.begin(), series.smoothed.y.end());
    figure.tokens.high = std::max({figure.tokens.high, series.loss.x.back(), 1.0});
  }
  finite = sorted_finite(std::move(finite));
  TETRAD_CHECK(!finite.empty(), "{:?}: no finite loss, nothing to draw", runs[0].path);
  figure.highest = finite.back();
  figure.loss = loss_range(figure);
  figure.gap = gap_range(figure);
  return figure;
}

}  // namespace tetrad
