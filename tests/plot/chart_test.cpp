// SPDX-License-Identifier: Apache-2.0
// Curves in a terminal: marks stand in the right cells, and only in cells.

#include "tetrad/plot/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "plot/make_runs.h"
#include "tetrad/plot/text.h"

namespace tetrad {
namespace {

using testing::falling_run;

constexpr int kMargin = 8;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Series series_of(const Curve& curve) {
  return {.name = "run", .recipe = "bf16", .loss = curve, .smoothed = curve, .gap = {}, .heldout = {}};
}

/// One series, loss from 0 to 9 and tokens from 0 to 9 on 10 rows and 40 - 8 columns: row = 9 - loss.
Figure small_figure(const Curve& curve) {
  Figure figure;
  figure.series = {series_of(curve)};
  figure.tokens = {0, 31};
  figure.loss = {0, 9};
  figure.highest = 9;
  return figure;
}

constexpr ChartStyle kSmall{.width = 40, .height = 10, .unicode = false, .colour = false};

/// The rows of the plot, without what is left of it.
std::vector<std::string> plot_of(const Figure& figure, const ChartStyle& style) {
  std::vector<std::string> lines = lines_of(draw_chart(figure, style));
  lines.erase(lines.begin(), lines.begin() + (figure.highest > figure.loss.high ? 2 : 1));
  lines.resize(static_cast<std::size_t>(style.height));
  for (std::string& line : lines) line = line.substr(kMargin);
  return lines;
}

TEST(Chart, KnownCurveIsInItsCells) {
  const std::vector<std::string> plot = plot_of(small_figure({{0, 9, 31}, {9, 0, 0}}), kSmall);
  for (int row = 0; row < 10; ++row)
    for (int column = 0; column < 32; ++column) {
      const bool expected = row == 9 ? column >= 9 : column == row;
      EXPECT_EQ(plot[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)], expected ? '*' : ' ')
          << row << ' ' << column;
    }
}

TEST(Chart, CutsOffAtTheRangeAndInterruptsAtNaN) {
  Figure figure = small_figure({{0, 9, 10, 11, 12, 30, 31}, {18, 9, 9, std::nan(""), 3, 3, -1e30}});
  figure.highest = 18;
  const std::vector<std::string> plot = plot_of(figure, kSmall);
  EXPECT_EQ(plot[0], std::string(9, ' ') + "**" + std::string(21, ' '));
  EXPECT_EQ(plot[6].substr(0, 12), std::string(12, ' '));
  EXPECT_EQ(plot[6].substr(12, 19), std::string(19, '*'));
}

TEST(Chart, CurvesThatCoincideTakeTurns) {
  Figure figure = small_figure({{0, 31}, {4, 4}});
  figure.series.push_back(series_of({{0, 31}, {4, 4}}));
  std::string expected;
  for (int i = 0; i < 16; ++i) expected += "*o";
  EXPECT_EQ(plot_of(figure, kSmall)[5], expected);
}

TEST(Chart, ReferencesLieBehindTheCurves) {
  Figure figure = small_figure({{0, 31}, {9, 0}});
  figure.references = {{"unigram entropy", 4}, {"entropy of the source", -3}};
  const std::string row = plot_of(figure, kSmall)[5];
  EXPECT_EQ(std::count(row.begin(), row.end(), '-') + std::count(row.begin(), row.end(), '*'), 32);
  EXPECT_GT(std::count(row.begin(), row.end(), '*'), 0);
  const std::string text = draw_chart(figure, kSmall);
  EXPECT_NE(text.find("-- unigram entropy 4.000\n"), text.npos) << text;
  EXPECT_NE(text.find(".. entropy of the source -3.000 (outside the chart)\n"), text.npos) << text;
}

TEST(Chart, BrailleDotsAreInTheirPlaces) {
  const ChartStyle style{.width = 40, .height = 10, .unicode = true, .colour = true};
  // The last of 64x40 dots: the lower right one of the last cell.
  const std::string text = draw_chart(small_figure({{31}, {0}}), style);
  EXPECT_NE(text.find("\x1b[38;5;33m⢀\x1b[0m\n"), text.npos) << text;
  const std::string first = draw_chart(small_figure({{0}, {9}}), style);
  EXPECT_NE(first.find("\x1b[38;5;33m⠁\x1b[0m"), first.npos) << first;
}

TEST(Chart, AsciiIsAscii) {
  std::vector<RunMetrics> runs;
  for (std::size_t i = 0; i < kMaxSeries; ++i)
    runs.push_back(
        falling_run("läufe/\x1b[2J" + std::to_string(i), "nvfp4", 300, 0.01 * static_cast<double>(i)));
  const Figure figure = make_figure(runs, {.unigram_entropy = 3.2, .entropy = 1.4}, 0);
  for (const char c : draw_chart(figure, {.width = 80, .height = 20, .unicode = false, .colour = false}))
    ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(Chart, EveryWidthIsKept) {
  for (const int steps : {1, 2, 300}) {
    const Figure figure = make_figure(std::array{falling_run("a", "bf16", steps, 0)}, {}, 0);
    for (const bool unicode : {false, true})
      for (int width = kMinChartWidth; width <= 200; width += 7) {
        const ChartStyle style{.width = width, .height = 12, .unicode = unicode, .colour = false};
        const std::vector<std::string> lines = lines_of(draw_chart(figure, style));
        const auto first =
            lines.size() - 12 - 3;  // axis, numbers and a legend of one line come after the rows
        for (std::size_t i = first; i < first + 14; ++i)
          EXPECT_EQ(character_count(lines[i]), static_cast<std::size_t>(width)) << lines[i];
        EXPECT_NE(lines[lines.size() - 2].find(" tokens"), std::string::npos);
      }
  }
}

TEST(Chart, ExtremeLossesStayInside) {
  RunMetrics run = falling_run("a", "bf16", 50, 0);
  for (std::size_t i = 0; i < run.train.size(); ++i) run.train[i].loss = i % 2 == 0 ? 1e30 : -1e30;
  const Figure figure = make_figure(std::array{run}, {}, 1);
  for (const std::string& line : lines_of(draw_chart(figure, {.width = 60, .height = 12})))
    EXPECT_LE(line.size(), 80U);
}

}  // namespace
}  // namespace tetrad
