// SPDX-License-Identifier: Apache-2.0
// Reading the folder of a run, also of one that is going on or broken.

#include "tetrad/plot/run_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "plot/make_runs.h"
#include "support/errors.h"
#include "support/files.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using testing::TemporaryFolder;
using testing::train_line;
using testing::write_file;

RunMetrics read_text(const std::string& text) {
  RunMetrics run;
  std::istringstream lines(text);
  read_metrics(lines, "m.jsonl", run);
  return run;
}

TEST(RunMetrics, ReadsTrainAndEvalLinesAndNothingElse) {
  const RunMetrics run = read_text(
      train_line(1, "5.5") + R"({"kind":"quant","step":1,"layer":"x"})" + "\n" + train_line(2, "4.25") +
      R"({"kind":"eval","step":2,"tokens":200,"source":"code","loss":4.5,"bits_per_byte":6.5})" + "\n");
  ASSERT_EQ(run.train.size(), 2U);
  EXPECT_EQ(run.train[1].step, 2);
  EXPECT_EQ(run.train[1].tokens, 200);
  EXPECT_EQ(run.train[1].loss, 4.25);
  EXPECT_EQ(run.train[1].tokens_per_s, 50.0);
  ASSERT_EQ(run.evals.at("code").size(), 1U);
  EXPECT_EQ(run.evals.at("code")[0].loss, 4.5);
  EXPECT_EQ(run.evals.at("code")[0].bits_per_byte, 6.5);
}

TEST(RunMetrics, TornLastLineIsLeftOut) {
  const std::string whole = train_line(1, "5") + train_line(2, "4");
  const std::string torn = train_line(3, "3");
  for (std::size_t length = 0; length + 2 < torn.size(); ++length)
    EXPECT_EQ(read_text(whole + torn.substr(0, length)).train.size(), 2U) << length;
  // Only the line's end is missing: it is whole.
  EXPECT_EQ(read_text(whole + torn.substr(0, torn.size() - 1)).train.size(), 3U);
}

TEST(RunMetrics, LossesThatAreNoNumbersInterrupt) {
  const RunMetrics run = read_text(train_line(1, "5") + train_line(2, "null") + train_line(3, "1e300") +
                                   train_line(4, "-1e38") + train_line(5, "4"));
  ASSERT_EQ(run.train.size(), 5U);
  for (const std::size_t i : {1U, 2U, 3U}) EXPECT_TRUE(std::isnan(run.train[i].loss)) << i;
  EXPECT_EQ(run.train[4].loss, 4);
}

TEST(RunMetrics, RepeatedStepsReplace) {
  const RunMetrics run = read_text(train_line(1, "5") + train_line(2, "4") + train_line(3, "9") +
                                   train_line(2, "4.5") + train_line(3, "3"));
  ASSERT_EQ(run.train.size(), 3U);
  EXPECT_EQ(run.train[1].loss, 4.5);
  EXPECT_EQ(run.train[2].loss, 3);
}

TEST(RunMetrics, GarbageIsRefusedWithItsLine) {
  const std::string good = train_line(1, "5");
  for (const std::string bad :
       {"{", "[]", "x", "\xff\xfe", "{\"kind\":3}", "{\"kind\":\"train\"}", "null", "1e999",
        R"({"kind":"train","step":-1,"tokens":1,"loss":1})",
        R"({"kind":"train","step":2,"tokens":1.5,"loss":1})",
        R"({"kind":"train","step":2,"tokens":200,"loss":"low"})", R"({"kind":"train","step":2,"tokens":200})",
        R"({"kind":"train","step":2,"tokens":20,"loss":1})",
        R"({"kind":"eval","step":2,"tokens":200,"source":7,"loss":1})"})
    expect_bad_input([&] { read_text(good + bad + "\n" + train_line(3, "4")); }, {"m.jsonl:2"}, bad);
  expect_bad_input([&] { read_text(good + std::string(10000, '[') + "\n" + good); }, {"m.jsonl:2"}, "deep");
}

class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "run");
    write_file(folder_ / "run/metrics.jsonl", train_line(1, "5"));
    write_file(
        folder_ / "run/config.yaml",
        "precision: {recipe: mxfp4}\ndata:\n  sources:\n    code: {path: " + folder_.file("code") + "}\n");
  }
  TemporaryFolder folder_;
};

TEST_F(RunFolder, GivesRecipeSourcesAndReferences) {
  const std::vector<RunMetrics> runs = {read_run(folder_ / "run")};
  EXPECT_EQ(runs[0].recipe, "mxfp4");
  EXPECT_EQ(runs[0].sources, std::vector{folder_.file("code")});
  EXPECT_FALSE(read_references(runs).unigram_entropy);

  write_file(folder_ / "code.json", R"({"vocab":257,"tokens":9,"documents":1,"unigram_entropy":3.25})");
  EXPECT_EQ(read_references(runs).unigram_entropy, 3.25);
  EXPECT_FALSE(read_references(runs).entropy);
  write_file(folder_ / "code.json", R"({"vocab":257,"tokens":9,"documents":1,"unigram_entropy":3.25,
                                        "synthetic":{"kind":"markov","parameters":{}},"entropy":1.5})");
  EXPECT_EQ(read_references(runs).entropy, 1.5);

  std::vector<RunMetrics> others = {runs[0], runs[0]};
  EXPECT_TRUE(read_references(others).unigram_entropy);
  others[1].sources = {folder_.file("text")};
  EXPECT_FALSE(read_references(others).unigram_entropy);
  others[1].sources = {folder_.file("code"), folder_.file("text")};
  EXPECT_FALSE(read_references(others).unigram_entropy);
}

TEST_F(RunFolder, WhatIsMissingIsSaid) {
  expect_bad_input([&] { read_run(folder_ / "nowhere"); }, {"nowhere/metrics.jsonl", "no such file"},
                   "folder");
  write_file(folder_ / "run/metrics.jsonl", "");
  expect_bad_input([&] { read_run(folder_ / "run"); }, {"metrics.jsonl", "no training step"}, "empty");
  write_file(folder_ / "run/metrics.jsonl", "{\"kind\":\"tr");
  expect_bad_input([&] { read_run(folder_ / "run"); }, {"metrics.jsonl", "no training step"}, "only torn");
  write_file(folder_ / "run/metrics.jsonl", train_line(1, "5"));
  write_file(folder_ / "run/config.yaml", "no: {such: key}");
  expect_bad_input([&] { read_run(folder_ / "run"); }, {"config.yaml", "unknown key"}, "config");
  std::filesystem::remove(folder_ / "run/config.yaml");
  expect_bad_input([&] { read_run(folder_ / "run"); }, {"config.yaml", "no such file"}, "no config");
}

}  // namespace
}  // namespace tetrad
