// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/chart.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tetrad/plot/text.h"

namespace tetrad {
namespace {

constexpr std::array<const char*, kMaxSeries> kSymbols = {"●", "○", "▲", "△", "■", "□", "◆", "◇"};
constexpr std::array<const char*, kMaxSeries> kAsciiSymbols = {"*", "o", "+", "x", "#", "@", "%", "&"};
/// Of the 256 colours: told apart on light and on dark ground, also by the colour-blind.
constexpr std::array<int, kMaxSeries> kTerminalColours = {33, 208, 35, 170, 178, 80, 160, 245};
constexpr int kMargin = 8;  //!< columns of labels and axis to the left of the plot

/// Which runs have something in a cell, as bits, and for each the dots of a braille character.
struct Cell {
  std::array<std::uint8_t, kMaxSeries> dots{};
  bool empty() const {
    return std::all_of(dots.begin(), dots.end(), [](std::uint8_t d) { return d == 0; });
  }
};

/// Cells, each of 2x4 dots (braille) or one (symbols).
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille)
      : columns_(columns),
        rows_(rows),
        across_(braille ? 2 : 1),
        down_(braille ? 4 : 1),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)) {}

  const Cell& cell(int column, int row) const { return cells_[index(column, row)]; }

  /// The row that a value between 0 (bottom) and 1 (top) falls into.
  int row_of(double fraction) const { return place(1 - fraction, rows_ * down_) / down_; }
  int column_of(double fraction) const { return place(fraction, columns_ * across_) / across_; }

  /// A curve, cut off at the ranges.
  void draw(const Curve& curve, const Range& x_range, const Range& y_range, std::size_t series) {
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      const double x1 = x_range.fraction(curve.x[i]);
      const double y1 = y_range.fraction(curve.y[i]);
      if (!std::isfinite(y1)) continue;
      const bool joined = i > 0 && std::isfinite(curve.y[i - 1]);
      const double x0 = joined ? x_range.fraction(curve.x[i - 1]) : x1;
      const double y0 = joined ? y_range.fraction(curve.y[i - 1]) : y1;
      draw_line({x0, y0}, {x1, y1}, series);
    }
  }

 private:
  struct Point {
    double x, y;
  };

  std::size_t index(int column, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) +
           static_cast<std::size_t>(column);
  }

  /// Which of `count` places a fraction falls into.
  static int place(double fraction, int count) {
    return static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * (count - 1)));
  }

  void draw_line(Point a, Point b, std::size_t series) {
    if (std::max(a.y, b.y) < 0 || std::min(a.y, b.y) > 1) return;
    const Point from = cut(a, b);
    const Point to = cut(b, a);
    const int x0 = place(from.x, columns_ * across_);
    const int x1 = place(to.x, columns_ * across_);
    const int y0 = place(1 - from.y, rows_ * down_);
    const int y1 = place(1 - to.y, rows_ * down_);
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      set(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))), series);
    }
  }

  /// `a`, moved along the line to `b` until it is between bottom and top.
  static Point cut(Point a, Point b) {
    const double y = std::clamp(a.y, 0.0, 1.0);
    if (y == a.y) return a;
    return {a.x + (b.x - a.x) * ((y - a.y) / (b.y - a.y)), y};
  }

  void set(int x, int y, std::size_t series) {
    // Braille numbers its dots down the left column, down the right one, and the last row came later.
    constexpr std::array<std::array<int, 2>, 4> kBits = {{{0, 3}, {1, 4}, {2, 5}, {6, 7}}};
    const int bit = kBits[static_cast<std::size_t>(y % down_)][static_cast<std::size_t>(x % across_)];
    std::uint8_t& dots = cells_[index(x / across_, y / down_)].dots[series];
    dots = static_cast<std::uint8_t>(dots | 1U << static_cast<unsigned>(bit));
  }

  int columns_, rows_;
  int across_, down_;
  std::vector<Cell> cells_;
};

std::string coloured(const std::string& text, std::size_t series, const ChartStyle& style) {
  return style.colour ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", kTerminalColours[series], text) : text;
}

std::string dimmed(const std::string& text, const ChartStyle& style) {
  return style.colour ? "\x1b[2m" + text + "\x1b[0m" : text;
}

bool uses_braille(const ChartStyle& style) { return style.unicode && style.colour; }

const char* symbol(std::size_t series, const ChartStyle& style) {
  return style.unicode ? kSymbols[series] : kAsciiSymbols[series];
}

std::string braille(unsigned dots) {
  const unsigned point = 0x2800 + dots;
  std::string text = {static_cast<char>(0xe2), static_cast<char>(0x80 | (point >> 6 & 0x3f)),
                      static_cast<char>(0x80 | (point & 0x3f))};
  return text;
}

/// Where curves lie on one another, they take turns from column to column, so that none hides another.
std::string cell_text(const Cell& cell, int column, const ChartStyle& style) {
  std::vector<std::size_t> present;
  unsigned dots = 0;
  for (std::size_t i = 0; i < kMaxSeries; ++i) {
    if (cell.dots[i] != 0) present.push_back(i);
    dots |= cell.dots[i];
  }
  const std::size_t series = present[static_cast<std::size_t>(column) % present.size()];
  return coloured(uses_braille(style) ? braille(dots) : symbol(series, style), series, style);
}

/// The mark of the reference in a row that has one.
std::string reference_mark(std::size_t reference, const ChartStyle& style) {
  if (style.unicode) return reference == 0 ? "┄" : "┈";
  return reference == 0 ? "-" : ".";
}

std::string plot_row(const Canvas& canvas, const Figure& figure, int row, int columns,
                     const ChartStyle& style) {
  std::string line;
  for (int column = 0; column < columns; ++column) {
    if (const Cell& cell = canvas.cell(column, row); !cell.empty()) {
      line += cell_text(cell, column, style);
      continue;
    }
    std::string background = " ";
    for (std::size_t i = 0; i < figure.references.size(); ++i) {
      const double value = figure.references[i].value;
      if (figure.loss.contains(value) && canvas.row_of(figure.loss.fraction(value)) == row)
        background = dimmed(reference_mark(i, style), style);
    }
    line += background;
  }
  return line;
}

/// The axis below the plot and the numbers under it.
std::string token_axis(const Canvas& canvas, const Figure& figure, int columns, const ChartStyle& style) {
  const Ticks ticks = make_ticks(figure.tokens, std::clamp(columns / 12, 2, 10));
  std::string axis;
  std::vector<bool> marked(static_cast<std::size_t>(columns));
  const std::string unit = " tokens";
  std::string labels(static_cast<std::size_t>(kMargin + columns), ' ');
  std::size_t free_from = 0;
  const std::size_t end = labels.size() - unit.size();
  for (const double value : ticks.values) {
    const auto column = static_cast<std::size_t>(canvas.column_of(figure.tokens.fraction(value)));
    marked[column] = true;
    const std::string text = format_count(value);
    const std::size_t at = kMargin + column - std::min<std::size_t>(text.size() / 2, kMargin);
    if (at < free_from || at + text.size() > end) continue;
    labels.replace(at, text.size(), text);
    free_from = at + text.size() + 1;
  }
  labels.replace(end, unit.size(), unit);
  for (const bool mark : marked) axis += style.unicode ? (mark ? "┬" : "─") : (mark ? "+" : "-");
  return fmt::format("{:>{}}{}{}\n{}\n", "", kMargin - 1, style.unicode ? "└" : "+", axis, labels);
}

std::string legend(const Figure& figure, const ChartStyle& style) {
  std::string text;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const std::string mark = uses_braille(style) ? "━━" : symbol(i, style);
    text += fmt::format("{:>{}}{} {} ({})\n", "", kMargin, coloured(mark, i, style),
                        printable(figure.series[i].name, !style.unicode),
                        printable(figure.series[i].recipe, !style.unicode));
  }
  for (std::size_t i = 0; i < figure.references.size(); ++i) {
    const Reference& reference = figure.references[i];
    const std::string mark = reference_mark(i, style) + reference_mark(i, style);
    text += fmt::format("{:>{}}{} {} {:.3f}{}\n", "", kMargin, dimmed(mark, style), reference.label,
                        reference.value, figure.loss.contains(reference.value) ? "" : " (outside the chart)");
  }
  return text;
}

bool names_utf8(std::string_view locale) {
  std::string lower;
  for (const char c : locale)
    if (c != '-') lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("utf8") != std::string::npos;
}

std::string_view environment(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int terminal_width() {
  const std::string_view columns = environment("COLUMNS");
  int width = 0;
  std::from_chars(columns.data(), columns.data() + columns.size(), width);
  if (width > 0) return width;
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

ChartStyle detect_style(int width) {
  ChartStyle style;
  style.width = std::clamp(width > 0 ? width : terminal_width(), kMinChartWidth, kMaxChartWidth);
  style.height = std::clamp(style.width / 4, 12, 24);
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (environment(name).empty()) continue;
    style.unicode = names_utf8(environment(name));
    break;
  }
  style.colour =
      isatty(STDOUT_FILENO) != 0 && environment("NO_COLOR").empty() && environment("TERM") != "dumb";
  return style;
}

std::string draw_chart(const Figure& figure, const ChartStyle& style) {
  const int columns = std::clamp(style.width, kMinChartWidth, kMaxChartWidth) - kMargin;
  const int rows = std::max(style.height, 4);
  Canvas canvas(columns, rows, uses_braille(style));
  for (std::size_t i = 0; i < figure.series.size(); ++i)
    canvas.draw(figure.series[i].smoothed, figure.tokens, figure.loss, i);

  const Ticks ticks = make_ticks(figure.loss, std::max(2, rows / 3));
  std::vector<std::string> labels(static_cast<std::size_t>(rows));
  for (const double value : ticks.values) {
    const std::string label = fmt::format("{:.{}f}", value, ticks.decimals);
    labels[static_cast<std::size_t>(canvas.row_of(figure.loss.fraction(value)))] =
        label.size() < kMargin - 1 ? label : fmt::format("{:.0e}", value);
  }

  std::string text = fmt::format("train loss, nats per token; mean of {} step{}\n", figure.window,
                                 figure.window == 1 ? "" : "s");
  if (figure.highest > figure.loss.high)
    text += fmt::format("cut off at {:.3g}: the highest is {:.3g}\n", figure.loss.high, figure.highest);
  for (int row = 0; row < rows; ++row) {
    const std::string& label = labels[static_cast<std::size_t>(row)];
    const char* axis = style.unicode ? (label.empty() ? "│" : "┤") : (label.empty() ? "|" : "+");
    text +=
        fmt::format("{:>{}}{}{}\n", label, kMargin - 1, axis, plot_row(canvas, figure, row, columns, style));
  }
  return text + token_axis(canvas, figure, columns, style) + legend(figure, style);
}

}  // namespace tetrad
