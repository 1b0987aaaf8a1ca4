// SPDX-License-Identifier: Apache-2.0
#include "tetrad/plot/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tetrad/plot/text.h"

namespace tetrad {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 72;
constexpr double kRight = kWidth - 24;
constexpr double kTop = 98;
constexpr double kLossHeight = 380;
constexpr double kGapTop = kTop + kLossHeight + 44;  //!< leaves room for the heading of the second panel
constexpr double kGapHeight = 130;
constexpr double kBelow = 56;  //!< for the numbers and the label of the lowest axis
constexpr double kLegendRow = 22;
constexpr std::size_t kBuckets = 900;  //!< of a curve: about one for each unit of width

struct Colours {
  const char* light;
  const char* dark;
};
/// Told apart by the colour-blind too.
constexpr std::array<Colours, kMaxSeries> kPageColours = {{{"#0b6bb5", "#5cb3ff"},
                                                           {"#d4580a", "#ff9a4d"},
                                                           {"#0a8a62", "#3fd6a5"},
                                                           {"#a8458b", "#ee8fd0"},
                                                           {"#8a6d00", "#e3c34a"},
                                                           {"#1a8fa3", "#6fdbee"},
                                                           {"#b3261e", "#ff8a80"},
                                                           {"#5f6670", "#b4bcc8"}}};

struct Panel {
  double top = 0;
  double height = 0;
  Range x;
  Range y;

  double bottom() const { return top + height; }
  double x_of(double value) const { return kLeft + x.fraction(value) * (kRight - kLeft); }
  /// What is far outside is cut off by the clip path anyway; here it only must stay a modest number.
  double y_of(double value) const {
    return std::clamp(bottom() - y.fraction(value) * height, top - 10 * height, bottom() + 10 * height);
  }
};

std::string style_sheet(std::size_t series) {
  std::string css =
      "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:13px;"
      "fill:#3b4452}\n"
      ".ground{fill:#ffffff}.title{font-size:20px;font-weight:600;fill:#141a24}.axis{stroke:#8a94a3}\n"
      ".grid{stroke:#e4e8ee}.zero{stroke:#8a94a3}.reference{stroke:#6b7584;stroke-dasharray:7 "
      "5;stroke-width:1.3}\n"
      ".plate{fill:#ffffff;fill-opacity:.86}\n"
      ".curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n"
      ".raw{fill:none;stroke-width:1;stroke-opacity:.3;stroke-linejoin:round;stroke-linecap:round}\n"
      ".heldout{fill:#ffffff;stroke-width:1.8}\n";
  std::string dark =
      "text{fill:#c3cad5}.ground{fill:#12161d}.title{fill:#f1f4f8}.axis{stroke:#6b7584}.grid{stroke:#252c37}"
      "\n"
      ".zero{stroke:#6b7584}.reference{stroke:#98a2b1}.plate,.heldout{fill:#12161d}\n";
  for (std::size_t i = 0; i < series; ++i) {
    css += fmt::format(".s{}{{stroke:{}}}", i, kPageColours[i].light);
    dark += fmt::format(".s{}{{stroke:{}}}", i, kPageColours[i].dark);
  }
  return fmt::format("<style>\n{}\n@media (prefers-color-scheme:dark){{\n{}\n}}\n</style>\n", css, dark);
}

std::string line(double x1, double y1, double x2, double y2, const char* css_class) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                     css_class, x1, y1, x2, y2);
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape_xml(text));
}

std::string path(const Panel& panel, const Curve& full, const std::string& css_class) {
  const Curve curve = thin(full, kBuckets);
  std::string commands;
  bool pen_down = false;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    if (!std::isfinite(curve.y[i])) {
      pen_down = false;
      continue;
    }
    // The line of length zero is a dot, for points that have no neighbours.
    const char* command = pen_down ? "L{:.1f} {:.1f}" : "M{:.1f} {:.1f}h0";
    commands += fmt::format(fmt::runtime(command), panel.x_of(curve.x[i]), panel.y_of(curve.y[i]));
    pen_down = true;
  }
  return commands.empty() ? "" : fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, commands);
}

std::string tick_text(double value, int decimals) {
  return std::abs(value) < 1e6 ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.3g}", value);
}

std::string grid(const Panel& panel, int y_count, bool token_labels, const char* unit) {
  std::string svg;
  const Ticks y_ticks = make_ticks(panel.y, y_count);
  for (const double value : y_ticks.values) {
    const double y = panel.y_of(value);
    svg += line(kLeft, y, kRight, y, "grid");
    svg += label(kLeft - 9, y + 4.5, "end", tick_text(value, y_ticks.decimals) + unit);
  }
  for (const double value : make_ticks(panel.x, 9).values) {
    const double x = panel.x_of(value);
    svg += line(x, panel.top, x, panel.bottom(), "grid");
    if (token_labels) svg += label(x, panel.bottom() + 20, "middle", format_count(value));
  }
  svg += line(kLeft, panel.bottom(), kRight, panel.bottom(), "axis");
  if (token_labels) svg += label((kLeft + kRight) / 2, panel.bottom() + 43, "middle", "training tokens");
  return svg;
}

/// Names are paths: of a long one, the end tells more than the beginning.
std::string shortened(const std::string& name, std::size_t length) {
  std::string text = printable(name);
  if (character_count(text) <= length) return text;
  while (character_count(text) >= length) {
    std::size_t first = 1;
    while (first < text.size() && (static_cast<unsigned>(text[first]) & 0xc0U) == 0x80) ++first;
    text.erase(0, first);
  }
  return "…" + text;
}

std::string series_label(const Series& series) {
  return fmt::format("{} ({})", shortened(series.name, 44), shortened(series.recipe, 20));
}

/// At the upper right, where losses are no longer; a plate keeps what lies beneath from disturbing.
std::string legend(const Figure& figure, const Panel& panel) {
  std::vector<std::string> names;
  std::size_t longest = 0;
  const bool heldout = std::any_of(figure.series.begin(), figure.series.end(),
                                   [](const Series& series) { return !series.heldout.x.empty(); });
  for (const Series& series : figure.series) names.push_back(series_label(series));
  if (heldout) names.emplace_back("held-out loss");
  for (const std::string& name : names) longest = std::max(longest, character_count(name));

  const double width = 52 + 7.2 * static_cast<double>(longest);
  const double left = kRight - width - 8;
  const double height = kLegendRow * static_cast<double>(names.size()) + 8;
  double y = panel.top + 10;
  for (const Reference& reference : figure.references) {  // its line and text are not to be covered
    const double at = panel.y_of(reference.value);
    if (at > y - 4 && at < y + height) y = at + 10;
  }
  std::string svg = fmt::format(
      "<rect class=\"plate\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"/>\n", left,
      y, width, kLegendRow * static_cast<double>(names.size()) + 8);
  for (std::size_t i = 0; i < names.size(); ++i) {
    y += kLegendRow;
    if (i < figure.series.size())
      svg += line(left + 10, y - 5, left + 34, y - 5, fmt::format("curve s{}", i).c_str());
    else
      svg += fmt::format("<circle class=\"heldout axis\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n",
                         left + 22, y - 5);
    svg += label(left + 42, y, "start", names[i]);
  }
  return svg;
}

std::string references(const Figure& figure, const Panel& panel) {
  std::string svg;
  for (const Reference& reference : figure.references) {
    if (!figure.loss.contains(reference.value)) continue;
    const double y = panel.y_of(reference.value);
    svg += line(kLeft, y, kRight, y, "reference");
    const std::string text = fmt::format("{}: {:.3f} nats", reference.label, reference.value);
    // Below the line if there is no room above it.
    const bool below = y < panel.top + 20;
    svg += label(kLeft + 0.30 * (kRight - kLeft), below ? y + 17 : y - 7, "start", text);
  }
  return svg;
}

/// A little wider than the panel: the marks of the last evaluation are on its edge.
std::string clip_path(const char* id, const Panel& panel) {
  return fmt::format(
      "<clipPath id=\"{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/></clipPath>\n",
      id, kLeft, panel.top, kRight - kLeft + 5, panel.height);
}

std::string loss_panel(const Figure& figure, const Panel& panel, bool lowest) {
  std::string svg = grid(panel, 9, lowest, "");
  svg += "<g clip-path=\"url(#loss)\">\n";
  for (std::size_t i = 0; i < figure.series.size(); ++i)
    svg += path(panel, figure.series[i].loss, fmt::format("raw s{}", i));
  for (std::size_t i = 0; i < figure.series.size(); ++i)
    svg += path(panel, figure.series[i].smoothed, fmt::format("curve s{}", i));
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const Curve heldout = thin(figure.series[i].heldout, 100);
    for (std::size_t k = 0; k < heldout.x.size(); ++k)
      if (std::isfinite(heldout.y[k]))
        svg += fmt::format("<circle class=\"heldout s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", i,
                           panel.x_of(heldout.x[k]), panel.y_of(heldout.y[k]));
  }
  svg += "</g>\n" + references(figure, panel) + legend(figure, panel);
  svg += label(kLeft, panel.top - 9, "start",
               fmt::format("train loss, nats per token (thin: each step; thick: mean of {})", figure.window));
  if (figure.highest > figure.loss.high)
    svg += label(kRight, panel.top - 9, "end",
                 fmt::format("cut off at {:.3g}; the highest is {:.3g}", figure.loss.high, figure.highest));
  return svg;
}

std::string gap_panel(const Figure& figure, const Panel& panel) {
  std::string svg = grid(panel, 5, true, " %");
  svg += line(kLeft, panel.y_of(0), kRight, panel.y_of(0), "zero");
  svg += "<g clip-path=\"url(#gap)\">\n";
  for (std::size_t i = 1; i < figure.series.size(); ++i)
    svg += path(panel, figure.series[i].gap, fmt::format("curve s{}", i));
  svg += "</g>\n";
  svg += label(kLeft, panel.top - 9, "start",
               fmt::format("gap of the mean train loss to {}", series_label(figure.series[0])));
  return svg;
}

}  // namespace

std::string draw_svg(const Figure& figure, const std::string& subtitle) {
  const bool has_gap = figure.series.size() > 1;
  const Panel loss{.top = kTop, .height = kLossHeight, .x = figure.tokens, .y = figure.loss};
  const Panel gap{.top = kGapTop, .height = kGapHeight, .x = figure.tokens, .y = figure.gap};
  const double height = (has_gap ? gap : loss).bottom() + kBelow;

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
      "height=\"{:.0f}\" "
      "role=\"img\" aria-labelledby=\"title\">\n<title id=\"title\">Training loss against tokens</title>\n",
      kWidth, height, kWidth, height);
  svg += style_sheet(figure.series.size());
  svg += "<defs>\n" + clip_path("loss", loss) + (has_gap ? clip_path("gap", gap) : "") + "</defs>\n";
  svg += "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n";
  svg += fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"31\">Training loss</text>\n", kLeft);
  svg += label(kLeft, 54, "start", subtitle);
  svg += loss_panel(figure, loss, !has_gap);
  if (has_gap) svg += gap_panel(figure, gap);
  return svg + "</svg>\n";
}

}  // namespace tetrad
