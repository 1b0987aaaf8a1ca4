// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loss curves in a terminal.

#include <string>

#include "tetrad/plot/figure.h"

namespace tetrad {

struct ChartStyle {
  int width = 80;   //!< characters, with the axis; kMinChartWidth to kMaxChartWidth
  int height = 20;  //!< rows of the plot itself
  bool unicode = false;
  bool colour = false;  //!< with Unicode too: braille dots; otherwise a symbol of its own for every run
};

constexpr int kMinChartWidth = 40;
constexpr int kMaxChartWidth = 400;

/// What standard output can show: a terminal's width and colours unless NO_COLOR is set, characters by the
/// locale's name in the environment. `width` 0 is that of COLUMNS, else of the terminal, else 80.
ChartStyle detect_style(int width);

/// Smoothed losses against tokens with axes, legend and references, every line ended.
std::string draw_chart(const Figure& figure, const ChartStyle& style);

}  // namespace tetrad
