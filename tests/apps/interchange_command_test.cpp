// SPDX-License-Identifier: Apache-2.0
// Export, import and training that goes on from an import, as a user types them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "support/files.h"
#include "support/process.h"
#include "support/training.h"
#include "tetrad/io/safetensors.h"

namespace tetrad::testing {
namespace {

constexpr const char* kModel =
    "model: {pattern: \"*-*-\", hidden: 64, heads: 2, kv_heads: 1, head_dim: 32, ffn: 128, activation: "
    "swiglu, vocab: 64, tied: true}\n";

class Interchange : public Training {
 protected:
  void SetUp() override {
    Training::SetUp();
    Words words = arguments(kModel, "nvfp4", "run", {"precision.schedule=[]"});
    ASSERT_EQ(run_tetrad(words).exit_code, 0);
    write_file(folder_ / "ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12\n60 3 3 9\n");
  }

  void expect_ok(const Words& words) {
    const Outcome outcome = run_tetrad(words);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  void expect_refused(const Words& words, const std::string& word) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  }
  nlohmann::json scores(const std::string& checkpoint, const std::string& precision) {
    const Outcome outcome = run_tetrad({"score", folder_.file(checkpoint), "--tokens",
                                        folder_.file("ids.txt"), "--precision", precision, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).value("lines", nlohmann::json());
  }
  /// How many magnitudes a block of 16 weights of the first layer has at most: E2M1 has eight.
  std::size_t magnitudes(const std::string& checkpoint) {
    const std::string plain = checkpoint + "-plain";
    expect_ok({"export", folder_.file(checkpoint), "-o", folder_.file(plain), "--dtype", "f32"});
    const SafetensorsFile file(folder_ / plain / "model.safetensors");
    const TensorInfo* info = file.find("model.layers.0.mlp.down_proj.weight");
    if (info == nullptr) return 0;
    std::vector<float> values(file.bytes(*info).size() / sizeof(float));
    std::memcpy(values.data(), file.bytes(*info).data(), values.size() * sizeof(float));
    std::size_t most = 0;
    for (std::size_t block = 0; block < values.size(); block += 16) {
      std::set<float> seen;
      for (std::size_t i = block; i < block + 16; ++i) seen.insert(std::abs(values[i]));
      most = std::max(most, seen.size());
    }
    return most;
  }
};

TEST_F(Interchange, AroundTheWorldAndBack) {
  expect_ok(
      {"export", folder_.file("run"), "-o", folder_.file("hf"), "--dtype", "f32", "--shard-gb", "0.0001"});
  expect_ok({"import", folder_.file("hf"), "-o", folder_.file("back")});
  EXPECT_EQ(scores("back", "f32"), scores("run", "f32"));

  // What was trained in NVFP4 is the same model in each of the serving formats: its weights are of four bits.
  EXPECT_GT(magnitudes("run"), 8U);
  std::vector<nlohmann::json> served;
  for (const char* to : {"modelopt", "compressed-tensors", "gguf"}) {
    const std::string name = std::string("model-") + to;
    const Words words = {"export", folder_.file("run"), "-o", folder_.file(name), "--to", to};
    expect_ok(words);
    expect_ok({"import", folder_.file(name), "-o", folder_.file(name + "-back")});
    served.push_back(scores(name + "-back", "f32"));
    const std::size_t found = magnitudes(name + "-back");
    EXPECT_TRUE(found > 1 && found <= 8) << to << ": " << found;
    expect_refused(words, "--force");
    Words again = words;
    again.emplace_back("--force");
    expect_ok(again);
  }
  for (std::size_t line = 0; line < 2; ++line) {
    const auto sum = [&](const nlohmann::json& lines) { return lines.at(line).at("sum").get<double>(); };
    EXPECT_NEAR(sum(served[1]), sum(served[0]), 1e-5);
    EXPECT_NEAR(sum(served[2]), sum(served[0]), 2e-3);  // GGUF has the norms in F32, the others in BF16
  }
}

TEST_F(Interchange, WhatIsOfNoUseOrDamagedIsRefused) {
  const std::string run = folder_.file("run");
  const std::string out = folder_.file("out");
  expect_refused({"export", run, "-o", out, "--to", "gguf", "--dtype", "f16"}, "--dtype has no effect");
  expect_refused({"export", run, "-o", out, "--precision", "nvfp4"},
                 "--precision has no effect with --to hf");
  expect_refused({"export", run, "-o", out, "--to", "gguf", "--calibrate", run}, "--calibrate");
  expect_refused({"export", run, "-o", out, "--to", "onnx"}, "onnx");
  expect_refused({"export", run, "-o", out, "--to", "modelopt", "--calibrate", folder_.file("nowhere")},
                 "nowhere");
  expect_refused({"import", folder_.file("nowhere"), "-o", out}, "nowhere");
  expect_refused({"import", folder_.file("ids.txt"), "-o", out}, "not a GGUF file");
  expect_refused({"import", run, "-o", out}, "config.json");
  EXPECT_EQ(run_tetrad({"export", folder_.file("a.bin"), "-o", out}).exit_code, 4);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Interchange, WhatIsCutShortLeavesNoModelBehind) {
  // one of its checkpoints, by name
  const std::string checkpoint = (folder_ / "run" / "checkpoints" / "step-9").string();
  const Words words = {"export", checkpoint, "-o", folder_.file("hf")};
  const std::vector<std::string> before = folder_.files();
  const Outcome full = run_tetrad(words, {"TETRAD_FAILPOINTS=file.write=enospc@5"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_NE(full.err.find("space"), std::string::npos) << full.err;
  EXPECT_EQ(folder_.files(), before);
  // Killed without warning, it cannot clean up, but nothing has the name of a model.
  EXPECT_EQ(run_tetrad(words, {"TETRAD_FAILPOINTS=file.rename=kill@2"}).exit_code, -1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "hf"));
  expect_ok(words);
}

TEST_F(Interchange, TrainingGoesOnFromAnImport) {
  expect_ok({"export", folder_.file("run"), "-o", folder_.file("hf"), "--dtype", "f32"});
  expect_ok({"import", folder_.file("hf"), "-o", folder_.file("imported")});
  // The model comes from the checkpoint; saying it again is allowed, saying another one is not.
  expect_ok(arguments("", "nvfp4", "on", {"--from", folder_.file("imported")}));
  expect_ok(arguments(kModel, "nvfp4", "said", {"--from", folder_.file("imported")}));
  EXPECT_EQ(metrics("said"), metrics("on"));
  expect_refused(arguments(kModel, "nvfp4", "other", {"--from", folder_.file("imported"), "model.ffn=64"}),
                 "model.ffn");
  expect_refused(arguments("", "nvfp4", "other", {"--from", folder_.file("hf")}), "tetrad import");
  expect_refused(arguments("", "nvfp4", "other", {"--from", folder_.file("ids.txt")}), "tetrad import");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other"));

  // Its first step has the weights of the import: the same as the original's, and not random ones.
  expect_ok(arguments("", "nvfp4", "original", {"--from", folder_.file("run")}));
  EXPECT_EQ(metrics("original"), metrics("on"));
  expect_ok(arguments(kModel, "nvfp4", "random"));
  EXPECT_NE(metrics("random")[0]["loss"], metrics("on")[0]["loss"]);
  EXPECT_EQ(metrics("on")[0]["step"], 1);

  // Killed before its first checkpoint, it begins again with those weights.
  const Words words = arguments("", "nvfp4", "killed", {"--from", folder_.file("imported")});
  EXPECT_NE(run_tetrad(words, {"TETRAD_FAILPOINTS=checkpoint.write=kill"}).exit_code, 0);
  finish("killed");
  EXPECT_EQ(metrics("killed"), metrics("on"));
}

nlohmann::json read_json(const std::filesystem::path& path) { return nlohmann::json::parse(read_file(path)); }

/// What was imported about texts is there after training too, said again or not, and generation keeps to it.
TEST_F(Interchange, TheEndsOfTextsStay) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i * 7919 % 1000) + "\n";
  write_file(folder_ / "text.txt", text);
  expect_ok({"data", "prepare", folder_.file("text.txt"), "-o", folder_.file("text")});
  const Words data = {"data.sources={text: " + folder_.file("text") + ", a: {heldout: ''}}", "data.phases=[]",
                      "data.tokenizer=bytes"};
  const auto train = [&](const char* model, const std::string& out, Words more) {
    more.insert(more.end(), data.begin(), data.end());
    expect_ok(arguments(model, "bf16", out, more));
  };
  const auto generate = [&](const std::string& checkpoint) {
    const Outcome outcome = run_tetrad({"generate", folder_.file(checkpoint), "--prompt", "the ", "--tokens",
                                        "20", "--temperature", "0", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["tokens"].get<std::vector<int>>();
  };
  train(kModel, "bytes", {"model.vocab=256"});
  const std::vector<int> tokens = generate("bytes");
  ASSERT_EQ(tokens.size(), 20U);
  expect_ok({"export", folder_.file("bytes"), "-o", folder_.file("hf"), "--dtype", "f32"});
  const nlohmann::json ends = {0, 255, tokens[5]};
  nlohmann::json generation = read_json(folder_ / "hf" / "generation_config.json");
  generation["eos_token_id"] = ends;
  write_file(folder_ / "hf" / "generation_config.json", generation.dump());
  expect_ok({"import", folder_.file("hf"), "-o", folder_.file("imported")});
  const auto first = std::ranges::find(tokens, tokens[5]);
  EXPECT_EQ(generate("imported"), std::vector<int>(tokens.begin(), first));

  train("", "on", {"--from", folder_.file("imported")});
  train(kModel, "said", {"--from", folder_.file("imported"), "model.vocab=256"});
  for (const char* run : {"on", "said"}) {
    const std::string out = std::string(run) + "-hf";
    expect_ok({"export", folder_.file(run), "-o", folder_.file(out)});
    EXPECT_EQ(read_json(folder_ / out / "generation_config.json")["eos_token_id"], ends) << run;
  }
}

TEST_F(Interchange, AWarningIsInTheAnswer) {
  expect_ok(arguments(kModel, "nvfp4", "adaptive", {"precision.schedule=[]", "precision.adaptive=true"}));
  const Outcome outcome = run_tetrad(
      {"export", folder_.file("adaptive"), "-o", folder_.file("out"), "--to", "modelopt", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("4/6"), std::string::npos) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["warnings"].size(), 1U);
}

}  // namespace
}  // namespace tetrad::testing
