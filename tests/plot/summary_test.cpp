// SPDX-License-Identifier: Apache-2.0
// The figures below the chart.

#include "tetrad/plot/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "plot/make_runs.h"

namespace tetrad {
namespace {

/// Losses 1 to 40, so that the last 5 % are two steps; speeds grow with the steps.
RunMetrics counted_run(const std::string& path, double factor) {
  RunMetrics run{.path = path, .recipe = "bf16", .sources = {}, .train = {}, .evals = {}};
  for (int step = 1; step <= 40; ++step)
    run.train.push_back(
        {.step = step, .tokens = 100 * step, .loss = factor * (41 - step), .tokens_per_s = factor * step});
  return run;
}

EvalPoint eval(std::int64_t step, double loss) {
  return {.step = step, .tokens = 100 * step, .loss = loss, .bits_per_byte = 2 * loss};
}

TEST(Summary, FiguresOfOneRun) {
  RunMetrics run = counted_run("a", 1);
  run.evals["code"] = {eval(20, 3), eval(40, 2.5)};
  const RunSummary summary = summarize(std::array{run})[0];
  EXPECT_EQ(summary.steps, 40);
  EXPECT_EQ(summary.tokens, 4000);
  EXPECT_EQ(summary.train_loss, 1.5);
  EXPECT_EQ(summary.evals.at("code").loss, 2.5);
  EXPECT_EQ(summary.tokens_per_s, 20.5);
  EXPECT_EQ(summary.speed, 1.0);
  EXPECT_EQ(summary.gap->percent, 0);
}

TEST(Summary, GapIsThatOfTheHeldOutLoss) {
  std::vector<RunMetrics> runs = {counted_run("a", 1), counted_run("b", 2)};
  runs[0].evals = {{"code", {eval(20, 4), eval(40, 2)}}, {"text", {eval(40, 1)}}};
  runs[1].evals = {
      {"code", {eval(20, 4), eval(40, 2.2)}}, {"text", {eval(40, 1.3)}}, {"more", {eval(40, 9)}}};
  const RunSummary other = summarize(runs)[1];
  EXPECT_TRUE(other.gap->heldout);
  EXPECT_NEAR(other.gap->percent, 20, 1e-9);  // the mean of 10 and 30
  EXPECT_EQ(other.speed, 2.0);
}

TEST(Summary, RunInProgressIsComparedWhereBothAre) {
  std::vector<RunMetrics> runs = {counted_run("a", 1), counted_run("b", 1)};
  runs[0].evals["code"] = {eval(10, 5), eval(20, 4), eval(40, 2)};
  runs[1].evals["code"] = {eval(20, 5), eval(30, 3)};
  runs[1].train.resize(30);
  const std::vector<RunSummary> summaries = summarize(runs);
  EXPECT_NEAR(summaries[1].gap->percent, 25, 1e-9);
  const std::string table = summary_table(summaries, {}, true);
  EXPECT_NE(table.find("b: the gap is that after 2k tokens"), table.npos) << table;
}

TEST(Summary, WithoutEvaluationsTheTrainLossDecides) {
  const std::vector<RunSummary> summaries = summarize(std::array{counted_run("a", 1), counted_run("b", 1.5)});
  EXPECT_FALSE(summaries[1].gap->heldout);
  EXPECT_NEAR(summaries[1].gap->percent, 50, 1e-9);
  EXPECT_NE(summary_table(summaries, {}, true).find("b: the gap is that of the train loss"),
            std::string::npos);
}

TEST(Summary, DivergedRunHasNoGap) {
  std::vector<RunMetrics> runs = {counted_run("a", 1), counted_run("b", 1)};
  for (TrainPoint& point : runs[1].train) point.loss = std::nan("");
  runs[0].evals["code"] = {eval(40, 2)};
  runs[1].evals["code"] = {{.step = 40, .tokens = 4000, .loss = std::nan(""), .bits_per_byte = {}}};
  const std::vector<RunSummary> summaries = summarize(runs);
  EXPECT_FALSE(summaries[1].gap);
  EXPECT_NE(summary_table(summaries, {}, true).find("not finite"), std::string::npos);
  const auto json = nlohmann::json::parse(to_json_text(summaries, {}));
  EXPECT_TRUE(json["runs"][1]["gap_percent"].is_null());
  EXPECT_TRUE(json["runs"][1]["train_loss"].is_null());
  EXPECT_TRUE(json["runs"][1]["eval"]["code"].is_null());
}

TEST(Summary, TableIsAligned) {
  std::vector<RunMetrics> runs = {counted_run("runs/bf16", 1), counted_run("é", 2)};
  runs[0].evals["code"] = {eval(40, 2)};
  runs[1].evals["code"] = {eval(40, 2.02)};
  EXPECT_EQ(summary_table(summarize(runs), {.unigram_entropy = 3.2101, .entropy = {}}, false),
            "run        recipe   train  held-out  bits/byte       gap  tokens/s  speed\n"
            "runs/bf16  bf16    1.5000    2.0000     4.0000  baseline      20.5  1.00×\n"
            "é          bf16    3.0000    2.0200     4.0400   +1.00 %        41  2.00×\n"
            "unigram entropy of the text: 3.2101 nats (a model that knows only how often tokens occur)\n");
}

TEST(Summary, JsonHasTheSame) {
  std::vector<RunMetrics> runs = {counted_run("a\xff", 1), counted_run("b", 2)};
  runs[0].evals["code"] = {eval(40, 2)};
  runs[1].evals["code"] = {eval(40, 2.5)};
  const auto json =
      nlohmann::json::parse(to_json_text(summarize(runs), {.unigram_entropy = 3.25, .entropy = {}}));
  EXPECT_EQ(json["unigram_entropy"], 3.25);
  const auto& other = json["runs"][1];
  EXPECT_EQ(other["path"], "b");
  EXPECT_EQ(other["recipe"], "bf16");
  EXPECT_EQ(other["steps"], 40);
  EXPECT_EQ(other["tokens"], 4000);
  EXPECT_EQ(other["train_loss"], 3.0);
  EXPECT_EQ(other["eval"]["code"], 2.5);
  EXPECT_EQ(other["gap_percent"], 25.0);
  EXPECT_EQ(other["tokens_per_s"], 41.0);
  EXPECT_FALSE(nlohmann::json::parse(to_json_text(summarize(runs), {})).contains("unigram_entropy"));
}

TEST(Summary, HeadlineNamesWhatDiffers) {
  std::vector<RunMetrics> runs = {counted_run("a", 1), counted_run("b", 1.01)};
  EXPECT_EQ(headline(summarize(runs)), "b: train loss +1.00 % against a");
  runs[1].recipe = "nvfp4";
  EXPECT_EQ(headline(summarize(runs)), "nvfp4: train loss +1.00 % against bf16");
}

}  // namespace
}  // namespace tetrad
