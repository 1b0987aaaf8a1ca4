// SPDX-License-Identifier: Apache-2.0
// The picture is well-formed whatever the runs are like.

#include "tetrad/plot/svg_chart.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <regex>

#include "plot/make_runs.h"
#include "support/files.h"
#include "tetrad/plot/summary.h"

namespace tetrad {
namespace {

using testing::falling_run;

/// Tags nest, attributes are quoted, every & begins an entity, and there is nothing after the end.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  std::size_t at = 0;
  while (at < svg.size()) {
    const std::size_t begin = svg.find('<', at);
    const std::string text = svg.substr(at, begin - at);
    EXPECT_EQ(text.find('>'), std::string::npos) << text;
    EXPECT_TRUE(std::regex_match(text, std::regex("([^&]|&(amp|lt|gt|quot|#39);)*"))) << text;
    if (begin == std::string::npos) {
      EXPECT_EQ(text, "\n");
      break;
    }
    const std::size_t end = svg.find('>', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(begin, end - begin + 1);
    at = end + 1;
    if (tag.starts_with("</")) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(tag, "</" + open.back() + ">");
      open.pop_back();
      continue;
    }
    std::smatch parts;
    // Paths are too long for the regular expression's recursion.
    const std::string short_tag = tag.size() < 2000 ? tag : tag.substr(0, tag.find(" d=")) + "/>";
    ASSERT_TRUE(
        std::regex_match(short_tag, parts, std::regex("<([a-zA-Z]+)( [a-zA-Z:-]+[0-9]?=\"[^\"<]*\")*(/?)>")))
        << short_tag;
    if (parts[3].length() == 0) open.push_back(parts[1]);
  }
  EXPECT_TRUE(open.empty());
  for (const char* word : {"nan", "inf", "NaN", "e+"})
    for (const char* before : {"\"", "M", "L", " "})
      EXPECT_EQ(svg.find(before + std::string(word)), std::string::npos) << before << word;
}

Figure two_runs() {
  return make_figure(
      std::array{falling_run("runs/bf16", "bf16", 300, 0), falling_run("runs/nvfp4", "nvfp4", 300, 0.01)},
      {.unigram_entropy = 3.2, .entropy = {}}, 0);
}

TEST(SvgChart, HasWhatItIsFor) {
  const std::string svg = draw_svg(two_runs(), "nvfp4: held-out loss +1.00 % to bf16");
  expect_well_formed(svg);
  for (const char* part :
       {"viewBox=", "prefers-color-scheme:dark", "unigram entropy: 3.200 nats", "runs/bf16 (bf16)",
        "runs/nvfp4 (nvfp4)", "training tokens", "class=\"raw s1\"", "class=\"curve s1\"",
        "held-out loss +1.00 % to bf16", "gap of the mean train loss"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(svg, draw_svg(two_runs(), "nvfp4: held-out loss +1.00 % to bf16"));
}

TEST(SvgChart, OneRunHasNoGap) {
  const std::string svg = draw_svg(make_figure(std::array{falling_run("a", "bf16", 300, 0)}, {}, 0), "");
  expect_well_formed(svg);
  EXPECT_EQ(svg.find("gap"), std::string::npos);
}

TEST(SvgChart, NamesAreEscaped) {
  const std::string name = "</text><script>\"&'\x01\xff";
  const std::string svg = draw_svg(
      make_figure(std::array{falling_run(name, "<i>", 30, 0), falling_run(name, "b", 30, 0)}, {}, 0), name);
  expect_well_formed(svg);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("&lt;/text&gt;&lt;script&gt;&quot;&amp;&#39;??"), std::string::npos);
}

TEST(SvgChart, CurveGoesWhereItShould) {
  RunMetrics run = falling_run("a", "bf16", 3, 0);
  for (std::size_t i = 0; i < 3; ++i) run.train[i].tokens = static_cast<std::int64_t>(50 * i);
  Figure figure = make_figure(std::array{run}, {}, 1);
  figure.loss = {0, 10};
  figure.series[0].smoothed.y = {10, 5, 0};
  // The panel is from 72 to 936 and from 98 down to 478.
  EXPECT_NE(draw_svg(figure, "").find("class=\"curve s0\" d=\"M72.0 98.0h0L504.0 288.0L936.0 478.0\""),
            std::string::npos);
}

TEST(SvgChart, WildRunsAreWellFormed) {
  std::vector<RunMetrics> runs = {falling_run("a", "bf16", 1, 0), falling_run("b", "bf16", 5000, 0),
                                  falling_run("c", "bf16", 40, 0)};
  for (std::size_t i = 0; i < 5000; i += 3) runs[1].train[i].loss = i % 2 == 0 ? 1e30 : std::nan("");
  for (std::size_t i = 20; i < 40; ++i) runs[2].train[i].loss = -1e30;
  const std::string svg = draw_svg(make_figure(runs, {}, 1), "");
  expect_well_formed(svg);
  EXPECT_LT(svg.size(), 300000U);
}

TEST(SvgChart, FromFoldersToPicture) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "code.json",
                      R"({"vocab":257,"tokens":9,"documents":1,"unigram_entropy":3.5})");
  std::vector<RunMetrics> runs;
  for (const std::string recipe : {"bf16", "nvfp4"}) {
    std::filesystem::create_directory(folder / recipe);
    testing::write_file(
        folder / (recipe + "/config.yaml"),
        "precision: " + recipe + "\ndata: {sources: {code: {path: " + folder.file("code") + "}}}\n");
    testing::write_file(folder / (recipe + "/metrics.jsonl"),
                        testing::train_line(1, "5") + testing::train_line(2, "null") +
                            testing::train_line(3, "3") +
                            R"({"kind":"eval","step":3,"tokens":300,"source":"code","loss":)" +
                            (recipe == "bf16" ? "3.0" : "3.3") + "}\n{\"kind\":\"tra");
    runs.push_back(read_run(folder / recipe));
  }
  const References references = read_references(runs);
  const Figure figure = make_figure(runs, references, 0);
  const std::vector<RunSummary> summaries = summarize(runs);
  const std::string svg = draw_svg(figure, headline(summaries));
  expect_well_formed(svg);
  EXPECT_NE(svg.find("nvfp4: held-out loss +10.00 % against bf16"), std::string::npos);
  EXPECT_NE(svg.find("unigram entropy: 3.500 nats"), std::string::npos);
  EXPECT_NE(svg.find("class=\"heldout s1\""), std::string::npos);
}

}  // namespace
}  // namespace tetrad
