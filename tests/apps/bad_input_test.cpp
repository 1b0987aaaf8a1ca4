// SPDX-License-Identifier: Apache-2.0
// What users give the program by mistake, or others on purpose: it says what is wrong, and leaves nothing
// behind.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/process.h"
#include "support/training.h"
#include "tetrad/checkpoint/manifest.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/io/sha256.h"

namespace tetrad::testing::bad_input_test {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;
constexpr const char* kNotUtf8 = "caf\xE9";  // as Latin-1 has it

constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, activation: "
    "swiglu, vocab: 64, tied: true}\n";

void expect_refused(const Words& words, const Words& said, int exit_code = 2) {
  const Outcome outcome = run_tetrad(words);
  EXPECT_EQ(outcome.exit_code, exit_code) << ::testing::PrintToString(words) << outcome.err;
  for (const std::string& word : said)
    EXPECT_NE(outcome.err.find(word), std::string::npos)
        << word << " for " << ::testing::PrintToString(words) << " in: " << outcome.err;
}

TEST(BadOptions, MistypedCommandsAndOptionsSayWhatWasMeant) {
  expect_refused({"trian", "config.yaml"}, {"\"trian\"", "did you mean 'train'?", "tetrad --help"});
  expect_refused({"data", "prepar", "text", "-o", "tokens"}, {"did you mean 'prepare'?"});
  expect_refused({"train", "config.yaml", "--resum", "run"}, {"did you mean '--resume'?"});
  expect_refused({"frobnicate"}, {"\"frobnicate\"", "tetrad --help lists them"});
}

TEST(BadOptions, NumbersThatAreNoneAreRefused) {
  for (const char* number : {"nan", "-nan", "inf", "-inf"}) {
    for (const Words& words : std::vector<Words>{{"compare", "c.yaml", "--margin"},
                                                 {"compare", "c.yaml", "--price"},
                                                 {"compare", "c.yaml", "--lr-factors"},
                                                 {"inspect", "run", "--budget"},
                                                 {"generate", "run", "--temperature"},
                                                 {"serve", "run", "--grace"},
                                                 {"serve", "run", "--idle-timeout"},
                                                 {"generate", "run", "--top-p"},
                                                 {"export", "run", "-o", "out", "--shard-gb"},
                                                 {"data", "prepare", "text", "-o", "tokens", "--heldout"},
                                                 {"data", "synth", "markov", "-o", "t", "--heldout"}}) {
      Words all = words;
      all.back() += std::string("=") + number;
      expect_refused(all, {words.back(), "is not a number"});
    }
  }
  expect_refused({"compare", "c.yaml", "--seeds", "0"}, {"--seeds", "at least 1", "number of runs"});
}

class BadInput : public Training {
 protected:
  void train(const std::string& run, Words more = {}) {
    const Outcome outcome = run_tetrad(arguments(kLlama, "bf16", run, std::move(more)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  std::filesystem::path checkpoint(const std::string& run) {
    return folder_ / run / "checkpoints" / ("step-" + std::to_string(kSteps));
  }
  /// Writes the manifest anew: everything in it is true again, whatever the files say.
  static void seal(const std::filesystem::path& checkpoint) {
    Manifest manifest = parse_manifest(read_file(checkpoint / kManifestName));
    for (ManifestFile& file : manifest.files) {
      const std::string bytes = read_file(checkpoint / file.name);
      file.bytes = bytes.size();
      file.sha256 = {sha256_hex(bytes_of(bytes))};  // less than a piece
    }
    write_file(checkpoint / kManifestName, manifest_text(manifest));
  }
  static void replace_in(const std::filesystem::path& file, const std::string& from, const std::string& to) {
    std::string text = read_file(file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    write_file(file, text.replace(at, from.size(), to));
  }
};

TEST_F(BadInput, SealedCheckpointsMayClaimNothing) {
  train("run");
  const auto step = checkpoint("run");
  replace_in(step / "config.yaml", "vocab: 64", "vocab: 10000000");
  seal(step);
  std::filesystem::remove(folder_ / "run" / "config.yaml");
  const std::string config = read_file(folder_.file("config-run.yaml"));
  write_file(folder_.file("more.yaml"), config.substr(config.find("precision:")));
  for (const Words& words : std::vector<Words>{
           {"generate", step.string()},
           {"eval", step.string(), "--data", folder_.file("a")},
           {"inspect", step.string(), "--precision", "nvfp4"},
           {"export", step.string(), "-o", folder_.file("out")},
           {"train", folder_.file("more.yaml"), "--from", step.string(), "--out", folder_.file("tuned")},
           {"train", "--resume", folder_.file("run")}}) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 4) << words[0] << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("[10000000, 32] by config.yaml"), std::string::npos) << outcome.err;
    EXPECT_LT(outcome.peak_memory, 600 * kMegabyte) << words[0];  // the embedding alone would have 1280
  }

  train("early");
  const auto early = checkpoint("early");
  nlohmann::json state = nlohmann::json::parse(read_file(early / "state.json"));
  state["step"] = -1;
  write_file(early / "state.json", state.dump());
  seal(early);
  expect_refused({"eval", early.string(), "--data", folder_.file("a")}, {"step -1"}, 4);
  expect_refused({"inspect", early.string(), "--precision", "nvfp4"}, {"step -1"}, 4);
  expect_refused({"train", "--resume", folder_.file("early")}, {"step -1"}, 4);
}

TEST_F(BadInput, RefusedOutputsLeaveNoFolders) {
  train("run");
  const auto step = checkpoint("run");
  std::string weights = read_file(step / "model.safetensors");
  const float bad = NAN;
  std::memcpy(weights.data() + weights.size() - sizeof(bad), &bad, sizeof(bad));
  write_file(step / "model.safetensors", weights);
  seal(step);
  expect_refused({"export", step.string(), "-o", folder_.file("new/hf")}, {"not finite"}, 4);
  expect_refused({"export", step.string(), "--to", "gguf", "-o", folder_.file("new/deep/model.gguf")},
                 {"not finite"}, 4);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));

  SafetensorsWriter writer(folder_ / "nan.safetensors", {{"w", DType::f32, {1, 16}}});
  const std::vector<float> row(16, bad);
  writer.write("w", std::as_bytes(std::span(row)));
  writer.commit();
  const Words quantize = {"quantize", folder_.file("nan.safetensors"), "--block", "tensor", "--format",
                          "fp8"};
  Words into_new = quantize;
  into_new.insert(into_new.end(), {"-o", folder_.file("new/q.safetensors")});
  expect_refused(into_new, {"not finite"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  std::filesystem::create_directory(folder_ / "old");  // not ours to remove
  Words into_old = quantize;
  into_old.insert(into_old.end(), {"-o", folder_.file("old/q.safetensors")});
  expect_refused(into_old, {"not finite"});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "old"));
}

TEST_F(BadInput, PathsNeedNotBeUtf8) {
  // A run could not read its own configuration again, so it does not begin.
  Words begin = arguments(kLlama, "bf16", "run");
  begin[3] = folder_.file(kNotUtf8);
  expect_refused(begin, {"run.out", "not UTF-8"});
  expect_refused({"compare", begin[1], "--arms", "bf16", "--out", folder_.file(kNotUtf8)}, {"not UTF-8"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / kNotUtf8));

  train("run");
  std::filesystem::rename(folder_ / "run", folder_ / kNotUtf8);
  const std::string run = folder_.file(kNotUtf8);
  write_file(folder_ / "ids", "1 2 3\n");
  for (const Words& words : std::vector<Words>{
           {"eval", run, "--data", folder_.file("a"), "--json"},
           {"score", run, "--tokens", folder_.file("ids"), "--json"},
           {"inspect", run, "--precision", "nvfp4", "--batches", "2", "--json"},
           {"plot", run, "--json"},
           {"export", run, "-o", folder_.file(std::string("hf-") + kNotUtf8), "--json"},
           {"data", "synth", "markov", "-o", folder_.file(std::string("t-") + kNotUtf8), "--json"},
           {"data", "inspect", folder_.file(std::string("t-") + kNotUtf8), "--json"}}) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 0) << words[0] << ": " << outcome.err;
    EXPECT_FALSE(nlohmann::json::parse(outcome.out, nullptr, false).is_discarded()) << outcome.out;
  }
  expect_refused({"train", "--resume", run}, {"run.out", "not UTF-8"});
}

// 100 kB take what 100 kB need: as logits they would be 400 MB.
TEST_F(BadInput, LongQuestionsAreReadInParts) {
  constexpr std::size_t kLength = 100'000;
  constexpr const char* kWide =
      "model: {pattern: \"M\", hidden: 32, vocab: 1024, rope: none, tied: true, mamba: {heads: 4, head_dim: "
      "16, groups: 2, state: 15, chunk: 8}}\n";
  write_file(folder_ / "text", std::string(8000, 'x'));
  ASSERT_EQ(run_tetrad({"data", "prepare", folder_.file("text"), "-o", folder_.file("bytes"), "--tokenizer",
                        "bytes", "--heldout", "0"})
                .exit_code,
            0);
  const Outcome trained = run_tetrad(arguments(
      kWide, "bf16", "run",
      {"train.steps=1", "data.phases=[]", "data.sources.a={path: " + folder_.file("bytes") + ", heldout: ''}",
       "data.sources.b.path=" + folder_.file("bytes")}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const nlohmann::json question = {
      {"question", std::string(kLength, 'q')}, {"choices", {"yes", "no"}}, {"answer", 0}};
  write_file(folder_ / "questions.jsonl", question.dump() + "\n");
  std::string ids;
  for (std::size_t i = 0; i < kLength; ++i) ids += "7 ";
  write_file(folder_ / "ids", ids);
  for (const Words& words : std::vector<Words>{
           {"eval", folder_.file("run"), "--backend", "cpu", "--choices", folder_.file("questions.jsonl")},
           {"score", folder_.file("run"), "--backend", "cpu", "--tokens", folder_.file("ids")}}) {
    const Outcome outcome = run_tetrad(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_LT(outcome.peak_memory, 300 * kMegabyte) << words[0];
  }
}

}  // namespace
}  // namespace tetrad::testing::bad_input_test
