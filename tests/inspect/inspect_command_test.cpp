// SPDX-License-Identifier: Apache-2.0
// Inspections as a user makes them.

#include <gtest/gtest.h>

#include <algorithm>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing {
namespace {

using Json = nlohmann::json;

class InspectCommand : public Training {
 protected:
  /// A short run of a tiny model in `out`.
  void train(const std::string& out, const std::string& recipe) {
    config_ = folder_.file("config.yaml");
    write_file(
        config_,
        "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, "
        "tied: true}\nprecision: " +
            recipe + "\ndata: {sources: {a: {path: " + folder_.file("a") + ", heldout: " + folder_.file("b") +
            "}}}\ntrain: {steps: 4, batch: 4, microbatch: 2, sequence: 32}\nrun: {backend: cpu, threads: "
            "1}\n");
    const Outcome trained = run_tetrad({"train", config_, "--out", folder_.file(out)});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  Outcome inspect(const std::string& run, Words more = {}) {
    // How much it draws is another matter on a GPU.
    Words words = {"inspect", folder_.file(run), "--backend", "cpu", "--threads", "1"};
    if (std::ranges::find(more, "--batches") == more.end()) more.insert(more.end(), {"--batches", "4"});
    words.insert(words.end(), more.begin(), more.end());
    return run_tetrad(words);
  }

  std::string config_;
};

TEST_F(InspectCommand, ReportsLayersOperandsAndASuggestion) {
  train("run", "nvfp4");
  const std::string kept = folder_.file("kept.yaml");
  const Outcome outcome = inspect("run", {"--json", "--yaml", kept, "--budget", "30"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["step"], 4);
  EXPECT_EQ(json["forward"], "nvfp4");
  EXPECT_EQ(json["microbatches"], 4);
  EXPECT_EQ(json["tokens_per_microbatch"], 64);
  EXPECT_EQ(json["losses_of"], "heldout");
  EXPECT_EQ(json["operands"].size(), 8U * 6);
  for (const char* key : {"layer", "operand", "now", "sqnr_db", "underflow", "saturated", "amax"})
    EXPECT_TRUE(json["operands"][0].contains(key)) << key;
  ASSERT_EQ(json["units"].size(), 8U);
  for (const char* key : {"name", "layers", "now", "suggested", "flop_share", "bf16", "fp8",
                          "lost_if_quantized", "backward", "bf16_bytes", "fp8_bytes"})
    EXPECT_TRUE(json["units"][0].contains(key)) << key;
  EXPECT_EQ(json["units"][7]["now"], "bf16");  // the last 15 % of four blocks are one
  EXPECT_TRUE(json["units"][0]["lost_if_quantized"].is_null());
  EXPECT_FALSE(json["units"][7]["lost_if_quantized"].is_null());
  for (const char* set : {"nothing", "today", "suggested"})
    for (const char* key : {"high_precision", "gradient_error", "loss", "cosine", "backward",
                            "bf16_flop_share", "fp8_flop_share", "weight_bytes"})
      EXPECT_TRUE(json["sets"][set].contains(key)) << set << " " << key;
  EXPECT_GT(json["sets"]["nothing"]["gradient_error"]["mean"],
            json["sets"]["today"]["gradient_error"]["mean"]);
  EXPECT_EQ(json["draws"], 4);
  EXPECT_EQ(json["loss_sequences"], 4 * 2);
  EXPECT_GT(json["sets"]["nothing"]["backward"]["variance"]["mean"],
            json["sets"]["today"]["backward"]["variance"]["mean"]);
  for (const char* key : {"bias_squared", "variance"})
    EXPECT_TRUE(json["units"][0]["backward"][key].contains("standard_error")) << key;
  EXPECT_TRUE(json["gain_over_today"]["gradient_error"].contains("noise"));
  EXPECT_TRUE(json.contains("verdict"));

  // What is written can be trained with, and says what was found.
  EXPECT_EQ(Json(read_file(kept)), json["yaml"]);
  const Outcome dry = run_tetrad({"train", config_, kept, "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find("precision.high_precision.fp8"), std::string::npos) << dry.out;
  EXPECT_EQ(inspect("run", {"--json", "--budget", "30"}).out, outcome.out);
}

TEST_F(InspectCommand, ForPeopleItEndsInLinesToPaste) {
  train("run", "nvfp4");
  const Outcome outcome = inspect("run/checkpoints/step-4", {"--by", "block"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* words :
       {"WHAT IS LOST", "wgrad.dy", "blocks.2.qkv", "SENSITIVITY", "One block", "NOISE OF THE BACKWARD PASS",
        "nothing kept", "today", "suggested", "precision:\n  high_precision: {first: "})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << " in\n" << outcome.out;
  EXPECT_NE(outcome.err.find("pass 120 of 120"), std::string::npos) << outcome.err;
}

TEST_F(InspectCommand, FewMicrobatchesClaimNothing) {
  train("run", "nvfp4");
  const Outcome outcome = inspect("run", {"--batches", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["verdict"], "none");
  EXPECT_TRUE(json["yaml"].is_null());
  for (const Json& unit : json["units"]) {
    EXPECT_EQ(unit["suggested"], "quantized");
    EXPECT_TRUE(unit["bf16"]["gradient_error"]["noise"]);
  }
  const Outcome text = inspect("run", {"--batches", "3"});
  EXPECT_NE(text.out.find("No suggestion: 3 microbatches are too few"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("precision:"), std::string::npos) << text.out;
  const Outcome refused = inspect("run", {"--batches", "2", "--yaml", folder_.file("kept.yaml")});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "kept.yaml"));
}

TEST_F(InspectCommand, TokensAndDrawsCanBeChosen) {
  train("run", "nvfp4");
  const Outcome outcome = inspect("run", {"--by", "block", "--tokens", "40", "--draws", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["tokens_per_microbatch"], 32) << "whole sequences of 32";
  EXPECT_EQ(json["loss_sequences"], 4);
  EXPECT_EQ(json["draws"], 2);
  EXPECT_EQ(inspect("run", {"--draws", "1"}).exit_code, 2);
}

TEST_F(InspectCommand, ATransformOfTheForwardPassLeavesTheNoiseOut) {
  train("run", "{recipe: nvfp4, rht: [fprop, wgrad]}");
  const Outcome json = inspect("run", {"--by", "block", "--json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_TRUE(Json::parse(json.out)["sets"]["nothing"]["backward"].is_null());
  EXPECT_NE(json.err.find("pass 60 of 60"), std::string::npos) << json.err;
  const Outcome text = inspect("run", {"--by", "block"});
  EXPECT_NE(text.out.find("not measured"), std::string::npos) << text.out;
}

TEST_F(InspectCommand, ABf16RunNeedsARecipe) {
  train("run", "bf16");
  const Outcome refused = inspect("run");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("nothing to inspect"), std::string::npos) << refused.err;
  const Outcome outcome = inspect("run", {"--precision", "mxfp4", "--by", "block", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["forward"], "mxfp4");
  EXPECT_NE(Json::parse(outcome.out)["yaml"].get<std::string>().find("recipe: mxfp4"), std::string::npos);
}

TEST_F(InspectCommand, RefusesWhatItCannotUse) {
  train("run", "nvfp4");
  EXPECT_EQ(inspect("run", {"--batches", "1"}).exit_code, 2);
  EXPECT_EQ(inspect("run", {"--precision", "bf16"}).exit_code, 2);
  EXPECT_EQ(inspect("nowhere").exit_code, 4);
  const std::string data = folder_.file("a.bin");
  std::filesystem::rename(data, data + ".away");
  const Outcome missing = inspect("run");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("a.bin"), std::string::npos) << missing.err;
  std::filesystem::rename(data + ".away", data);
  for (const char* step : {"step-0", "step-4"})
    std::filesystem::resize_file(folder_ / "run/checkpoints" / step / "model.safetensors", 100);
  const Outcome damaged = inspect("run");
  EXPECT_EQ(damaged.exit_code, 4);
  EXPECT_NE(damaged.err.find("step-4"), std::string::npos) << damaged.err;
}

TEST_F(InspectCommand, ASignalStopsIt) {
  train("run", "nvfp4");
  RunningTetrad running({"inspect", folder_.file("run"), "--batches", "2000", "--threads", "1"});
  while (!running.finished() && running.err().find("pass 1 of") == std::string::npos) usleep(1000);
  running.send(SIGINT);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("stopped by a signal"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace tetrad::testing
