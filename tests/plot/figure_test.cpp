// SPDX-License-Identifier: Apache-2.0
// Averages, gaps, ranges and ticks.

#include "tetrad/plot/figure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plot/make_runs.h"
#include "support/errors.h"
#include "tetrad/plot/text.h"

namespace tetrad {
namespace {

using testing::falling_run;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Figure, MovingAverageIsTheMeanOfEachWindow) {
  std::vector<double> values;
  for (int i = 0; i < 53; ++i) values.push_back(i % 11 == 4 ? kNaN : std::sin(i) * i);
  for (const std::int64_t window : {1, 2, 3, 5, 8, 52, 53, 54, 106, 1000000}) {
    const std::vector<double> means = moving_average(values, window);
    for (std::int64_t i = 0; i < 53; ++i) {
      double sum = 0;
      int count = 0;
      const std::int64_t first = i - (window - 1) / 2;
      for (std::int64_t k = std::max<std::int64_t>(first, 0); k < std::min<std::int64_t>(first + window, 53);
           ++k) {
        if (std::isnan(values[static_cast<std::size_t>(k)])) continue;
        sum += values[static_cast<std::size_t>(k)];
        ++count;
      }
      const auto at = static_cast<std::size_t>(i);
      if (std::isnan(values[at]))
        EXPECT_TRUE(std::isnan(means[at]));
      else
        EXPECT_NEAR(means[at], sum / count, 1e-12) << "window " << window << " at " << i;
    }
  }
}

TEST(Figure, HugeValueSpoilsOnlyItsWindows) {
  std::vector<double> values(20, 1.0);
  values[10] = 1e30;
  const std::vector<double> means = moving_average(values, 3);
  for (const std::size_t i : {0U, 8U, 12U, 19U}) EXPECT_EQ(means[i], 1.0) << i;
  EXPECT_GT(means[9], 1e29);
}

TEST(Figure, GapIsRelativeAndInterpolated) {
  const Curve baseline{{100, 200, 300}, {4, 2, 1}};
  const Curve gap = relative_gap(baseline, {{50, 100, 150, 300, 301}, {9, 4.4, 2.7, 0.5, 1}});
  ASSERT_EQ(gap.x, (std::vector<double>{100, 150, 300}));
  EXPECT_NEAR(gap.y[0], 10, 1e-9);
  EXPECT_NEAR(gap.y[1], -10, 1e-9);
  EXPECT_NEAR(gap.y[2], -50, 1e-9);
  EXPECT_TRUE(std::isnan(relative_gap({{0, 1}, {0, -1}}, {{0, 1}, {1, 1}}).y[0]));
}

TEST(Figure, RangeShowsWhereCurvesDifferAndKeepsReferences) {
  const std::vector<RunMetrics> runs = {falling_run("a", "bf16", 300, 0),
                                        falling_run("b", "nvfp4", 300, 0.02)};
  const Figure figure = make_figure(runs, {.unigram_entropy = 3.2, .entropy = 0.1}, 0);
  EXPECT_EQ(figure.window, 6);
  EXPECT_TRUE(figure.loss.contains(3.2));
  EXPECT_FALSE(figure.loss.contains(0.1));
  EXPECT_LT(figure.loss.high, 4.5);
  EXPECT_GT(figure.highest, figure.loss.high);
  for (const Series& series : figure.series) EXPECT_TRUE(figure.loss.contains(series.smoothed.y.back()));
  EXPECT_TRUE(figure.gap.contains(0));
  EXPECT_NEAR(figure.series[1].gap.y.back(), 2 * 300.0 / 350, 0.05);
}

TEST(Figure, DivergedRunDoesNotFlattenTheOthers) {
  std::vector<RunMetrics> runs = {falling_run("a", "bf16", 300, 0), falling_run("b", "nvfp4", 300, 0)};
  for (std::size_t i = 100; i < 300; ++i) runs[1].train[i].loss = i > 250 ? kNaN : 1e20;
  const Figure figure = make_figure(runs, {}, 0);
  EXPECT_LT(figure.loss.high, 10);
  EXPECT_LT(figure.loss.low, 2);
}

TEST(Figure, OneStepOrOneValueIsEnough) {
  for (const int steps : {1, 2}) {
    RunMetrics run = falling_run("a", "bf16", steps, 0);
    for (TrainPoint& point : run.train) point.loss = 0;
    const Figure figure = make_figure(std::array{run}, {}, 0);
    EXPECT_LT(figure.loss.low, figure.loss.high);
    EXPECT_FALSE(make_ticks(figure.loss, 5).values.empty());
  }
}

TEST(Figure, NothingToDrawIsSaid) {
  RunMetrics run = falling_run("a", "bf16", 3, 0);
  for (TrainPoint& point : run.train) point.loss = kNaN;
  testing::expect_bad_input([&] { make_figure(std::array{run}, {}, 0); }, {"no finite loss"}, "NaN");
  const std::vector<RunMetrics> many(kMaxSeries + 1, falling_run("a", "bf16", 3, 0));
  testing::expect_bad_input([&] { make_figure(many, {}, 0); }, {"9 runs"}, "many");
}

TEST(Figure, TicksAreRoundAndWithin) {
  const Ticks ticks = make_ticks({1.93, 3.41}, 8);
  EXPECT_EQ(ticks.values.front(), 2.0);
  EXPECT_EQ(ticks.decimals, 1);
  EXPECT_EQ(ticks.values.size(), 8U);
  EXPECT_EQ(make_ticks({0, 1228800}, 9).values[1], 200000);
  EXPECT_EQ(make_ticks({-1, 1}, 4).values, (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(make_ticks({0, 1}, 4).decimals, 1);
  for (const double value : make_ticks({-0.1, 2}, 4).values) EXPECT_FALSE(std::signbit(value)) << value;
}

TEST(Figure, ThinningKeepsTheExtremes) {
  Curve curve;
  for (int i = 0; i < 10000; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 5003 ? 100.0 : i == 7001 ? -100.0 : std::sin(i));
  }
  const Curve thinned = thin(curve, 50);
  EXPECT_LE(thinned.x.size(), 102U);
  EXPECT_TRUE(std::is_sorted(thinned.x.begin(), thinned.x.end()));
  EXPECT_EQ(*std::max_element(thinned.y.begin(), thinned.y.end()), 100.0);
  EXPECT_EQ(*std::min_element(thinned.y.begin(), thinned.y.end()), -100.0);
}

TEST(Text, CountsAndNames) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.7), "1k");
  EXPECT_EQ(format_count(1228800), "1.23M");
  EXPECT_EQ(format_count(2e12), "2T");
  EXPECT_EQ(printable("a\x1b[31mb\n\xff\xc3\xa9" + std::string("\xe2\x80") + "\xae"), "a?[31mb??é???");
  EXPECT_EQ(printable("é", true), "?");
  EXPECT_EQ(escape_xml("<a href=\"&\">'"), "&lt;a href=&quot;&amp;&quot;&gt;&#39;");
  EXPECT_EQ(character_count("é…x"), 3U);
}

}  // namespace
}  // namespace tetrad
