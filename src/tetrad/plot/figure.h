// SPDX-License-Identifier: Apache-2.0
#pragma once
// The picture of some runs before it is drawn: curves, ranges and ticks, the same for terminal and SVG.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tetrad/plot/run_metrics.h"

namespace tetrad {

/// Points by ascending x. y may be NaN: there the curve is interrupted.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
};

struct Range {
  double low = 0;
  double high = 1;

  /// 0 at low, 1 at high.
  double fraction(double value) const { return (value - low) / (high - low); }
  bool contains(double value) const { return low <= value && value <= high; }
};

struct Series {
  std::string name;
  std::string recipe;
  Curve loss;      //!< against tokens
  Curve smoothed;  //!< the same points
  Curve gap;       //!< of the smoothed loss to that of the first series, in percent; empty for the first
  Curve heldout;   //!< evaluations; empty unless all runs have one held-out source, the same
};

/// A horizontal line.
struct Reference {
  std::string label;
  double value = 0;
};

struct Figure {
  std::vector<Series> series;
  std::vector<Reference> references;
  Range tokens;
  Range loss;
  Range gap;                //!< contains 0
  std::int64_t window = 1;  //!< points of the moving average
  double highest = 0;       //!< of all finite smoothed losses; what is over loss.high is cut off
};

constexpr std::size_t kMaxSeries = 8;  //!< more cannot be told apart

/// `window` is that of the moving average, in lines of metrics; 0 is a fiftieth of the longest run. Throws
/// Error (bad input) if there are more runs than kMaxSeries or not one finite loss.
Figure make_figure(std::span<const RunMetrics> runs, const References& references, std::int64_t window);

/// The mean of the finite values in a window around each point, cut off at the ends; NaN where the point
/// itself is. Takes time in proportion to the points, whatever the window.
std::vector<double> moving_average(std::span<const double> values, std::int64_t window);

/// In percent of the baseline, at those points of the curve that lie within the baseline.
Curve relative_gap(const Curve& baseline, const Curve& curve);

/// At most two points, the lowest and the highest, of each of `buckets` equal stretches of x; a stretch
/// without finite values keeps one that interrupts the curve.
Curve thin(const Curve& curve, std::size_t buckets);

/// Multiples of 1, 2 or 5 times a power of ten within the range, at most `count`, at least one interval
/// apart.
struct Ticks {
  std::vector<double> values;
  int decimals = 0;  //!< that tell them apart
};
Ticks make_ticks(const Range& range, int count);

}  // namespace tetrad
