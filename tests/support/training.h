// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small training runs as a user does them, and what they leave behind.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/process.h"

namespace tetrad::testing {

inline constexpr std::int64_t kSteps = 12;

using Words = std::vector<std::string>;

/// A folder with two small sources and the configuration of a small run: two phases, a precision switch in
/// the middle, two microbatches per step.
class Training : public ::testing::Test {
 protected:
  explicit Training(std::string backend = "cpu", std::int64_t sequence = 32)
      : backend_(std::move(backend)), sequence_(sequence) {}

  void SetUp() override {
    for (const auto& [name, seed] : {std::pair("a", "1"), std::pair("b", "2")}) {
      const Outcome made = run_tetrad({"data", "synth", "markov", "-o", folder_.file(name), "--vocab", "64",
                                       "--tokens", std::to_string(125 * sequence_), "--seed", seed});
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }

  Words arguments(const std::string& model, const std::string& recipe, const std::string& out,
                  Words more = {}) {
    const std::string config = folder_.file("config-" + out + ".yaml");
    write_file(config, model + "precision: {recipe: " + recipe +
                           ", high_precision: {first: 0, last: 1}, schedule: [{at: 0.5, forward: bf16}]}\n"
                           "data: {sources: {a: {path: " +
                           folder_.file("a") + ", heldout: " + folder_.file("a-heldout") +
                           "}, b: {path: " + folder_.file("b") +
                           "}}, phases: [{until: 0.6, mix: {a: 1}}, {until: 1, mix: {a: 0.3, b: 0.7}}]}\n"
                           "train: {steps: " +
                           std::to_string(kSteps) +
                           ", batch: 4, microbatch: 2, sequence: " + std::to_string(sequence_) +
                           ", seed: 3, checkpoint: 3, eval: {every: 4, "
                           "sequences: 3}, telemetry_every: 5}\n"
                           "schedule: {kind: wsd, warmup: 0.2, decay: 0.3}\n"
                           "run: {backend: " +
                           backend_ + "}\n");
    Words words = {"train", config, "--out", folder_.file(out)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// Everything in metrics.jsonl that does not speak of time, memory or files.
  std::vector<nlohmann::json> metrics(const std::string& run) {
    std::vector<nlohmann::json> lines;
    std::ifstream in(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      nlohmann::json json = nlohmann::json::parse(line);
      if (json["kind"] == "checkpoint" || json["kind"] == "resume") continue;
      for (const char* key :
           {"time", "tokens_per_s", "tflops", "seconds", "memory_bytes", "joules", "device_busy"})
        json.erase(key);
      lines.push_back(json);
    }
    return lines;
  }

  /// The complete final state: the bytes of the tensors, and everything else but which run it is.
  std::string final_state(const std::string& run, std::int64_t step = kSteps) {
    const std::filesystem::path checkpoint = folder_ / run / "checkpoints" / ("step-" + std::to_string(step));
    nlohmann::json state = nlohmann::json::parse(read_file(checkpoint / "state.json"));
    state.erase("run");
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors") +
           state.dump();
  }

  void expect_same_run(const std::string& expected, const std::string& actual, std::int64_t steps = kSteps) {
    EXPECT_EQ(metrics(actual), metrics(expected));
    EXPECT_FALSE(final_state(expected, steps).empty());
    EXPECT_TRUE(final_state(actual, steps) == final_state(expected, steps));
  }

  /// Resumes until the run ends; what ended before does not matter.
  void finish(const std::string& run) {
    const Outcome resumed = run_tetrad({"train", "--resume", folder_.file(run)});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  }

  std::string backend_;
  std::int64_t sequence_;
  TemporaryFolder folder_;
};

struct Family {
  std::string name;
  const char* model;
  std::string recipe;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

}  // namespace tetrad::testing
