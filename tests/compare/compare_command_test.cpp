// SPDX-License-Identifier: Apache-2.0
// Comparisons as a user makes them.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/process.h"
#include "support/training.h"
#include "tetrad/io/safetensors.h"

namespace tetrad::testing {
namespace {

using Json = nlohmann::json;

class CompareCommand : public Training {
 protected:
  /// A comparison of a tiny model, in `out`.
  Outcome compare(const std::string& out, Words more, const Words& environment = {}) {
    const std::string config = folder_.file("small.yaml");
    write_file(
        config,
        "model: {pattern: \"*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, "
        "tied: true}\n"
        "data: {sources: {a: {path: " +
            folder_.file("a") + ", heldout: " + folder_.file("a-heldout") +
            "}}}\n"
            "train: {steps: 10, batch: 4, sequence: 32, eval: {sequences: 4}, checkpoint: 3}\n"
            "run: {backend: cpu, threads: 1}\n");
    Words words = {"compare", config, "--out", folder_.file(out)};
    words.insert(words.end(), more.begin(), more.end());
    return run_tetrad(words, environment);
  }
  Json report(const std::string& out) const { return Json::parse(read_file(folder_ / out / "report.json")); }
};

TEST_F(CompareCommand, ReportsEveryArm) {
  const Outcome outcome = compare("c", {"--arms", "bf16,nvfp4", "--seeds", "2", "--price", "3", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["arms"].size(), 2U);
  EXPECT_TRUE(json["complete"]);
  const Json& arm = json["arms"][1];
  EXPECT_EQ(arm["trials"].size(), 2U);
  EXPECT_EQ(arm["trials"][0]["loss"].size(), 10U);
  EXPECT_EQ(arm["verdict"]["pairs"], 2);
  EXPECT_FALSE(arm["quantizer"]["cells"].empty());
  EXPECT_TRUE(arm["recovery"]["resume_ok"]);
  EXPECT_TRUE(arm["recovery"]["nan_ok"]);
  EXPECT_GT(arm["cost"]["price_per_million_tokens"], 0);
  EXPECT_TRUE(arm["cost"]["joules_per_token"].is_null());
  EXPECT_LT(arm["gradient"]["cosine"], 0.9999);
  EXPECT_GT(arm["gradient"]["cosine"], 0.5);
  EXPECT_NEAR(json["arms"][0]["gradient"]["cosine"], 1, 1e-12);
  // The reference's weights at both precisions, on the same tokens.
  EXPECT_EQ(json["arms"][0]["fixed_weights"]["difference_nats"], 0);
  EXPECT_NEAR(
      arm["fixed_weights"]["loss"].get<double>() - json["arms"][0]["fixed_weights"]["loss"].get<double>(),
      arm["fixed_weights"]["difference_nats"], 1e-12);
  EXPECT_NE(arm["fixed_weights"]["difference_nats"], 0);
  EXPECT_GT(arm["fixed_weights"]["standard_error"], 0);
  EXPECT_LT(arm["fixed_weights"]["standard_error"], 0.1) << "paired, not the spread of losses";
  EXPECT_EQ(arm["fixed_weights"]["sequences"], 2);
  EXPECT_TRUE(arm["fixed_weights"]["noise"]) << "two sequences say nothing";
  // The run's own weights in BF16, too.
  EXPECT_NE(arm["heldout"][0]["bf16_loss"], arm["heldout"][0]["loss"]);
  EXPECT_NEAR(arm["heldout"][0]["bf16_loss"], arm["heldout"][0]["loss"].get<double>(), 0.1);
  EXPECT_TRUE(json["arms"][0]["heldout"][0]["bf16_loss"].is_null());
  // Held-out losses and gaps are those of the runs.
  const double reference = json["arms"][0]["heldout"][0]["loss"];
  EXPECT_NEAR(arm["heldout"][0]["gap_nats"], arm["heldout"][0]["loss"].get<double>() - reference, 1e-12);
  const std::string page = read_file(folder_ / "c" / "report.html");
  EXPECT_NE(page.find("\"format\":1"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c" / "probes"));
}

TEST_F(CompareCommand, KeepsWhatWasProbed) {
  const Words probes = {"--probes", "gradients,losses,recovery"};
  ASSERT_EQ(compare("c", {"--arms", "bf16,nvfp4", probes[0], probes[1]}).exit_code, 0);
  const Json before = report("c")["arms"][1];
  // Not even the checkpoints are needed again.
  for (const char* name : {"bf16", "nvfp4"})
    std::filesystem::remove_all(folder_ / "c/runs" / name / "seed-1/checkpoints");
  const Words resume = {"compare", "--resume", folder_.file("c"), "--seeds", "2", probes[0], probes[1]};
  const Outcome more = run_tetrad(resume);
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(report("c")["arms"][1]["gradient"], before["gradient"]);
  EXPECT_EQ(report("c")["arms"][1]["fixed_weights"], before["fixed_weights"]);
  EXPECT_EQ(report("c")["arms"][1]["recovery"], before["recovery"]);
  // What is probed now is the first run that has a checkpoint.
  for (const char* name : {"bf16", "nvfp4"})
    std::filesystem::remove(folder_ / "c/runs" / name / "probes.json");
  ASSERT_EQ(run_tetrad(resume).exit_code, 0);
  EXPECT_GT(report("c")["arms"][1]["gradient"]["cosine"], 0.5);
  EXPECT_NE(report("c")["arms"][1]["gradient"], before["gradient"]);

  const auto refuse = [&](const std::string& word) {
    const Outcome outcome = run_tetrad(resume);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  };
  std::filesystem::remove(folder_ / "c/runs/bf16/probes.json");
  std::filesystem::remove_all(folder_ / "c/runs/bf16/seed-2/checkpoints");
  refuse("no run of bf16 has a checkpoint");
  write_file(folder_.file("c/runs/nvfp4/probes.json"), "{\"gradients\": 1}");
  refuse("nvfp4/probes.json");
}

TEST_F(CompareCommand, ReportsTheMachinesOfItsRuns) {
  ASSERT_EQ(compare("c", {"--arms", "bf16,nvfp4", "--probes", "none"}).exit_code, 0);
  const Json here = report("c");
  EXPECT_EQ(here["hardware"]["backend"], "cpu");
  EXPECT_EQ(here["hardware"]["threads"], 1);
  EXPECT_GT(here["arms"][0]["cost"]["utilisation"], 0);
  // One of its runs was made elsewhere.
  const std::string file = folder_.file("c/runs/nvfp4/seed-1/machine.json");
  write_file(
      file,
      R"({"backend": "cuda", "device": "Elsewhere", "threads": 0, "peak_tflops": 2, "peak_name": "p"})");
  const Words resume = {"compare", "--resume", folder_.file("c"), "--probes", "none"};
  ASSERT_EQ(run_tetrad(resume).exit_code, 0);
  const Json both = report("c");
  EXPECT_EQ(both["hardware"]["backend"], "cpu, cuda");
  EXPECT_EQ(both["hardware"]["device"], here["hardware"]["device"].get<std::string>() + ", Elsewhere");
  EXPECT_EQ(both["arms"][0]["cost"], here["arms"][0]["cost"]);
  const Json& cost = both["arms"][1]["cost"];
  EXPECT_DOUBLE_EQ(cost["utilisation"], cost["tflops"].get<double>() / 2);
  EXPECT_EQ(cost["peak_name"], "p");
  // A product that is slower than the training was measured wrongly: what others measured counts, or nothing.
  Json machine = Json::parse(read_file(folder_ / "c/runs/bf16/seed-1/machine.json"));
  machine["peak_tflops"] = 1e-9;
  write_file(file, machine.dump());
  ASSERT_EQ(run_tetrad(resume).exit_code, 0);
  EXPECT_LE(report("c")["arms"][1]["cost"]["utilisation"], 1);
  write_file(folder_ / "c/runs/bf16/seed-1/machine.json", machine.dump());
  ASSERT_EQ(run_tetrad(resume).exit_code, 0);
  const Json doubtful = report("c");
  for (const Json& arm : doubtful["arms"]) EXPECT_TRUE(arm["cost"]["utilisation"].is_null());

  write_file(file, "{}");
  const Outcome refused = run_tetrad(resume);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("seed-1/machine.json"), std::string::npos) << refused.err;
}

TEST_F(CompareCommand, EveryArmAnswersQuestions) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat. ";
  write_file(folder_.file("text.txt"), text);
  ASSERT_EQ(run_tetrad({"data", "prepare", folder_.file("text.txt"), "-o", folder_.file("t")}).exit_code, 0);
  const std::string quiz = folder_.file("animals.jsonl");
  write_file(quiz, R"({"question": "the cat", "choices": [" sat", " xyz"], "answer": 0})"
                   "\n");
  const std::string data = "data={tokenizer: bytes, sources: {t: {path: " + folder_.file("t") + "}}}";
  const Outcome outcome = compare("c", {"--arms", "bf16,fp8", "--choices", quiz, "--probes", "checks", data,
                                        "model.vocab=257", "train.steps=2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = report("c");
  for (const Json& arm : json["arms"]) {
    EXPECT_TRUE(arm["gradient"].is_null());
    const bool answered = std::ranges::any_of(
        arm["checks"], [](const Json& check) { return check["name"] == "animals" && check["count"] == 1; });
    EXPECT_TRUE(answered) << arm["checks"];
  }
}

TEST_F(CompareCommand, TheSamePrecisionTwiceGivesTheSameBits) {
  write_file(folder_.file("twice.yaml"),
             "arms: {one: {precision.recipe: nvfp4}, two: {precision.recipe: nvfp4}}\nseeds: 2\n");
  const Outcome outcome = compare("c", {"--arms", folder_.file("twice.yaml"), "--probes", "none"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = report("c");
  for (const std::size_t seed : {0U, 1U})
    for (const char* curve : {"loss", "grad_norm", "evals"})
      EXPECT_EQ(json["arms"][0]["trials"][seed][curve], json["arms"][1]["trials"][seed][curve]);
  EXPECT_NE(json["arms"][0]["trials"][0]["loss"],
            json["arms"][0]["trials"][1]["loss"]);  // other seeds differ
  EXPECT_EQ(json["arms"][1]["verdict"]["kind"], "equivalent");
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(folder_ / "c/runs/one/seed-2/checkpoints/step-10" / file),
              read_file(folder_ / "c/runs/two/seed-2/checkpoints/step-10" / file));
}

TEST_F(CompareCommand, GoesOnWhereItWasKilled) {
  const Words arms = {"--arms", "bf16,nvfp4", "--probes", "none"};
  ASSERT_EQ(compare("whole", arms).exit_code, 0);
  // In the middle of the first run, at its third checkpoint, and of the second.
  EXPECT_EQ(compare("killed", arms, {"TETRAD_FAILPOINTS=checkpoint.create_folder=kill@3"}).exit_code, -1);
  EXPECT_EQ(run_tetrad({"compare", "--resume", folder_.file("killed"), "--probes", "none"},
                       {"TETRAD_FAILPOINTS=metrics.write=kill@22"})
                .exit_code,
            -1);
  EXPECT_FALSE(report("killed")["complete"]);
  const Outcome last = run_tetrad({"compare", "--resume", folder_.file("killed"), "--probes", "none"});
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const Json whole = report("whole");
  const Json resumed = report("killed");
  EXPECT_TRUE(resumed["complete"]);
  for (const std::size_t arm : {0U, 1U}) {
    EXPECT_EQ(resumed["arms"][arm]["trials"][0]["loss"], whole["arms"][arm]["trials"][0]["loss"]);
    EXPECT_EQ(resumed["arms"][arm]["heldout"], whole["arms"][arm]["heldout"]);
  }
  // More seeds may be added; what is there stays.
  const Outcome more =
      run_tetrad({"compare", "--resume", folder_.file("killed"), "--seeds", "2", "--probes", "none"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(report("killed")["arms"][1]["trials"].size(), 2U);
  EXPECT_EQ(report("killed")["arms"][1]["trials"][0], resumed["arms"][1]["trials"][0]);
}

TEST_F(CompareCommand, MakesNoCheckpointsThatNobodyNeeds) {
  const Words arms = {"--arms",  "bf16,nvfp4", "--seeds",   "2",
                      "--light", "--probes",   "gradients", "train.checkpoint=0"};
  ASSERT_EQ(compare("whole", arms).exit_code, 0);
  EXPECT_EQ(compare("killed", arms, {"TETRAD_FAILPOINTS=metrics.write=kill@30"}).exit_code, -1);
  // It remembers what was asked for.
  const Outcome last = run_tetrad({"compare", "--resume", folder_.file("killed")});
  ASSERT_EQ(last.exit_code, 0) << last.err;
  for (const char* out : {"whole", "killed"}) {
    const Json json = report(out);
    EXPECT_TRUE(json["complete"]);
    EXPECT_FALSE(json["arms"][1]["gradient"].is_null());
    for (const Json& arm : json["arms"])
      for (const Json& trial : arm["trials"]) {
        const std::string run = trial["folder"];
        EXPECT_EQ(std::filesystem::exists(folder_ / out / run / "checkpoints/step-10"),
                  run == "runs/bf16/seed-1");
        EXPECT_FALSE(std::filesystem::exists(folder_ / out / run / "checkpoints/step-0"));
      }
    EXPECT_EQ(json["arms"][1]["trials"][1]["loss"], report("whole")["arms"][1]["trials"][1]["loss"]);
  }
}

TEST_F(CompareCommand, LeavesCheckpointsThatAreKeptForGood) {
  const Words options = {"--arms",
                         "bf16,nvfp4",
                         "--light",
                         "--probes",
                         "gradients",
                         "train.checkpoint.every=4",
                         "train.checkpoint.keep_every=4"};
  ASSERT_EQ(compare("c", options).exit_code, 0);
  EXPECT_FALSE(report("c")["arms"][1]["gradient"].is_null());
  for (const char* arm : {"bf16", "nvfp4"}) {
    const std::filesystem::path kept = folder_ / "c/runs" / arm / "seed-1/checkpoints";
    EXPECT_TRUE(std::filesystem::exists(kept / "step-4") && std::filesystem::exists(kept / "step-8"));
    EXPECT_EQ(std::filesystem::exists(kept / "step-10"), arm == std::string("bf16"));
  }
}

TEST_F(CompareCommand, ProbesASeedThatWasAdded) {
  ASSERT_EQ(
      compare("c", {"--arms", "bf16,nvfp4", "--light", "--probes", "none", "train.checkpoint=0"}).exit_code,
      0);
  const Outcome more = run_tetrad(
      {"compare", "--resume", folder_.file("c"), "--seeds", "3", "--light", "--probes", "gradients,checks"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_FALSE(report("c")["arms"][1]["gradient"].is_null());
  for (const char* arm : {"bf16", "nvfp4"})
    for (const int seed : {1, 2, 3})
      EXPECT_EQ(std::filesystem::exists(folder_ / "c/runs" / arm / ("seed-" + std::to_string(seed)) /
                                        "checkpoints/step-10"),
                seed == 2);
}

/// Trunks that the comparison trains itself.
TEST_F(CompareCommand, ArmsBranchOffFromSharedTrunks) {
  const Words words = {"--arms",   "bf16,nvfp4", "--seeds",           "2", "--trunk-steps", "4",
                       "--probes", "none",       "train.eval.every=2"};
  const Outcome outcome = compare("c", words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("[1/6 trunk seed 1"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("[6/6 nvfp4 seed 2"), std::string::npos) << outcome.err;
  const Json json = report("c");
  EXPECT_EQ(json["trunk"]["steps"], 4);
  EXPECT_TRUE(json["complete"]);
  for (const Json& arm : json["arms"]) {
    EXPECT_EQ(arm["trials"][0]["loss"].size(), 6U);
    EXPECT_EQ(arm["windows"].size(), 3U);
    EXPECT_EQ(arm["windows"][0]["name"], "heldout");
  }
  EXPECT_EQ(json["arms"][1]["verdict"]["freedom"], 1);
  // The reference simply goes on: its branch is the run that nobody branched.
  ASSERT_EQ(compare("whole", {"--arms", "bf16", "--seeds", "2", "--probes", "none", "train.eval.every=2"})
                .exit_code,
            0);
  for (const char* seed : {"seed-1", "seed-2"})
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_file(folder_ / "c/runs/bf16" / seed / "checkpoints/step-10" / file),
                read_file(folder_ / "whole/runs/bf16" / seed / "checkpoints/step-10" / file));

  // Killed in the second trunk and in a branch, and resumed.
  EXPECT_EQ(compare("killed", words, {"TETRAD_FAILPOINTS=metrics.write=kill@5"}).exit_code, -1);
  const Words resume = {"compare", "--resume", folder_.file("killed"), "--probes", "none"};
  EXPECT_EQ(run_tetrad(resume, {"TETRAD_FAILPOINTS=metrics.write=kill@30"}).exit_code, -1);
  const Json half = report("killed");
  EXPECT_FALSE(half["complete"]);
  EXPECT_EQ(half["arms"][1]["verdict"]["kind"], "undecided")
      << "there is no verdict before all runs have ended";
  const Outcome last = run_tetrad(resume);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  for (const std::size_t arm : {0U, 1U}) {
    EXPECT_EQ(report("killed")["arms"][arm]["verdict"], json["arms"][arm]["verdict"]);
    for (const std::size_t trial : {0U, 1U})
      EXPECT_EQ(report("killed")["arms"][arm]["trials"][trial]["loss"],
                json["arms"][arm]["trials"][trial]["loss"]);
  }
  // What was stated beforehand stays.
  for (const Words& change : {Words{"--primary", "last"}, {"--margin", "2"}, {"--trunk-steps", "5"}}) {
    Words other = resume;
    other.insert(other.end(), change.begin(), change.end());
    const Outcome refused = run_tetrad(other);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find("stated before"), std::string::npos) << refused.err;
    Words again = words;
    again.insert(again.end(), change.begin(), change.end());
    EXPECT_EQ(compare("c", again).exit_code, 2);
  }
}

/// How moments are stored is a precision too: an arm begins with those of the trunk, rounded.
TEST_F(CompareCommand, ArmsMayStoreMomentsInBf16) {
  write_file(folder_.file("moments.yaml"),
             "arms: {f32: {}, bf16: {optim: {moments: bf16}}}\ntrunk_steps: 4\n");
  const Outcome outcome = compare("c", {"--arms", folder_.file("moments.yaml"), "--probes", "none"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = report("c");
  EXPECT_TRUE(json["complete"]);
  ASSERT_EQ(json["lock"]["differences"].size(), 1U);
  EXPECT_EQ(json["lock"]["differences"][0]["key"], "optim.moments");
  const auto type_in = [&](const std::string& arm) {
    const SafetensorsFile file(folder_ / "c/runs" / arm / "seed-1/checkpoints/step-10/optimizer.safetensors");
    return file.find("blocks.0.qkv.weight.second")->dtype;
  };
  EXPECT_EQ(type_in("f32"), DType::f32);
  EXPECT_EQ(type_in("bf16"), DType::bf16);
  // Weights at the branch are the same; the next update already finds rounded moments.
  const auto losses = [&](std::size_t arm) { return json["arms"][arm]["trials"][0]["loss"]; };
  EXPECT_EQ(losses(0)[0], losses(1)[0]);
  EXPECT_NE(losses(0), losses(1));
}

/// Trunks that are given, and another arm as the reference.
TEST_F(CompareCommand, ArmsBranchOffFromGivenTrunks) {
  ASSERT_EQ(
      compare("from", {"--arms", "bf16", "--seeds", "3", "--probes", "none", "train.steps=4"}).exit_code, 0);
  const auto trunk = [&](int seed) { return folder_.file("from/runs/bf16/seed-" + std::to_string(seed)); };
  write_file(folder_.file("twice.yaml"),
             "arms: {bf16: {precision: bf16}, one: {precision: nvfp4}, two: {precision: nvfp4}}\n");
  const Words words = {"compare",
                       "--branch",
                       trunk(1),
                       "--branch",
                       trunk(2),
                       "--arms",
                       folder_.file("twice.yaml"),
                       "--out",
                       folder_.file("c"),
                       "--probes",
                       "none",
                       "train.steps=8"};
  const Outcome outcome = run_tetrad(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = report("c");
  EXPECT_EQ(json["trunk"]["given"].size(), 2U);
  EXPECT_EQ(json["arms"][1]["trials"][1]["loss"].size(), 4U);
  // Two branches of the same precision are equal, and teach nothing about noise.
  for (const char* curve : {"loss", "grad_norm", "evals"})
    EXPECT_EQ(json["arms"][1]["trials"][1][curve], json["arms"][2]["trials"][1][curve]);
  EXPECT_EQ(json["arms"][1]["verdict"]["freedom"], 1);

  const Outcome against = run_tetrad({"compare", "--resume", folder_.file("c"), "--against", "one"});
  ASSERT_EQ(against.exit_code, 0) << against.err;
  EXPECT_NE(against.out.find("report-against-one.html"), std::string::npos) << against.out;
  const Json other = Json::parse(read_file(folder_ / "c/report-against-one.json"));
  EXPECT_EQ(other["reference"], "one");
  EXPECT_EQ(other["arms"][0]["name"], "one");
  EXPECT_EQ(other["arms"][2]["verdict"]["gap_percent"], 0);
  EXPECT_NEAR(other["arms"][1]["verdict"]["gap_nats"], -json["arms"][1]["verdict"]["gap_nats"].get<double>(),
              1e-12);
  EXPECT_EQ(report("c"), json) << "the first report stays";

  // A further trunk is a further look.
  const Outcome more =
      run_tetrad({"compare", "--resume", folder_.file("c"), "--branch", trunk(3), "--probes", "none"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(report("c")["looks"]["before"], Json::array({2}));
  EXPECT_DOUBLE_EQ(report("c")["looks"]["alpha"], 0.025);
  EXPECT_EQ(report("c")["arms"][1]["verdict"]["pairs"], 3);

  const auto refuse = [&](const Words& bad, const std::string& word) {
    const Outcome refused = run_tetrad(bad);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find(word), std::string::npos) << refused.err;
  };
  refuse({"compare", "--branch", trunk(1), "--branch", trunk(1), "--arms", "bf16,nvfp4", "--out",
          folder_.file("d"), "train.steps=8"},
         "both of seed 1");
  refuse({"compare", "--branch", trunk(1), "--arms", "bf16,nvfp4", "--out", folder_.file("d")},
         "train.steps");
  refuse(
      {"compare", "--branch", trunk(1), "--arms", "bf16,nvfp4", "--out", folder_.file("d"), "train.batch=2"},
      "train.batch");
  refuse({"compare", "--resume", folder_.file("c"), "--against", "three"}, "no such arm");
}

TEST_F(CompareCommand, RefusesWhatWouldNotBeAComparison) {
  const auto refuse = [&](const Outcome& outcome, const std::string& word) {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  };
  write_file(folder_.file("lr.yaml"), "arms: {bf16: {}, faster: {optim.lr: 1}}\n");
  refuse(compare("c", {"--arms", folder_.file("lr.yaml")}), "optim.lr");
  refuse(compare("c", {"--arms", "bf16,fp3"}), "fp3");
  refuse(compare("c", {}), "--arms");
  refuse(run_tetrad({"compare", "--resume", folder_.file("nothing")}), "compare.yaml");
  ASSERT_EQ(compare("c", {"--arms", "bf16", "--probes", "none", "train.steps=1"}).exit_code, 0);
  refuse(compare("c", {"--arms", "bf16", "--probes", "none", "train.steps=2"}), "another comparison");
  refuse(compare("c", {"--arms", "bf16,nvfp4", "--probes", "none", "train.steps=1"}), "another comparison");
}

TEST_F(CompareCommand, FilesOfOthersAreNotTouched) {
  for (const char* name : {"report.html", "report.json", "runs"}) {
    std::filesystem::create_directories(folder_ / "mine");
    write_file(folder_ / "mine" / name, "mine");
    const Outcome refused = compare("mine", {"--arms", "bf16", "--probes", "none", "train.steps=1"});
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find(name), std::string::npos) << refused.err;
    EXPECT_EQ(read_file(folder_ / "mine" / name), "mine");
    std::filesystem::remove_all(folder_ / "mine");
  }
}

TEST_F(CompareCommand, ArmsThatAreTheSameAreNamed) {
  write_file(folder_.file("arms.yaml"),
             "arms: {first: {precision: nvfp4}, second: {precision: {recipe: nvfp4, storage: bf16}}, third: "
             "{precision: bf16}}\n");
  const Outcome outcome = compare("c", {"--arms", folder_.file("arms.yaml"), "--dry-run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("WARNING: the arms first and second have the same precision"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("third"), std::string::npos) << outcome.err;
  const Outcome refused =
      compare("c", {"--arms", "nvfp4", "--dry-run", "precision.high_precision.match=[qkv]"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
}

TEST_F(CompareCommand, ADryRunListsRunsAndDifferences) {
  const Outcome outcome = compare("c", {"--arms", "bf16,nvfp4", "--seeds", "2", "--dry-run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("runs/nvfp4/seed-2"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("precision.recipe"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c"));
}

}  // namespace
}  // namespace tetrad::testing
