// SPDX-License-Identifier: Apache-2.0
// Training on masked documents as a user does it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing::train_documents_test {
namespace {

constexpr const char* kLlama =
    "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, activation: "
    "swiglu, vocab: 64, tied: true}\n";
constexpr const char* kHybrid =
    "model: {pattern: \"M-*-\", hidden: 32, heads: 2, kv_heads: 2, head_dim: 16, ffn: 64, activation: "
    "squared_relu, vocab: 64, tied: false, rope: none, mamba: {heads: 4, head_dim: 16, groups: 2, state: 15, "
    "chunk: 8}}\n";

class TrainingOnDocuments : public Training, public ::testing::WithParamInterface<Family> {
 protected:
  void SetUp() override {
    Training::SetUp();
    for (const char* name : {"a", "b", "a-heldout"}) {
      const Outcome cut = run_tetrad({"data", "convert", folder_.file(name), "-o", documents(name), "--vocab",
                                      "64", "--document-end", "3"});
      ASSERT_EQ(cut.exit_code, 0) << cut.err;
    }
  }

  std::string documents(const std::string& name) const { return folder_.file("documents-" + name); }

  Words words(const std::string& out, bool masked, Words more = {}) {
    more.insert(more.end(),
                {"data.sources.a.path=" + documents("a"), "data.sources.a.heldout=" + documents("a-heldout"),
                 "data.sources.b.path=" + documents("b"),
                 std::string("data.document_mask=") + (masked ? "true" : "false")});
    return arguments(GetParam().model, GetParam().recipe, out, more);
  }

  double last_evaluation(const std::string& run) {
    double loss = 0;
    for (const nlohmann::json& line : metrics(run))
      if (line["kind"] == "eval") loss = line["loss"];
    return loss;
  }
};

TEST_P(TrainingOnDocuments, MasksThemInTrainingAndEvaluation) {
  const Outcome masked = run_tetrad(words("masked", true, {"run.threads=1"}));
  ASSERT_EQ(masked.exit_code, 0) << masked.err;
  const Outcome unmasked = run_tetrad(words("unmasked", false));
  ASSERT_EQ(unmasked.exit_code, 0) << unmasked.err;
  EXPECT_NE(metrics("masked")[0]["loss"], metrics("unmasked")[0]["loss"]);
  EXPECT_NE(last_evaluation("masked"), last_evaluation("unmasked"));

  // What the trainer evaluates with, everybody does.
  const Outcome eval = run_tetrad(
      {"eval", folder_.file("masked"), "--data", documents("a-heldout"), "--sequences", "3", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const nlohmann::json results = nlohmann::json::parse(eval.out);
  EXPECT_NEAR(results.at("data").at(documents("a-heldout")).at("loss").get<double>(),
              last_evaluation("masked"), 1e-6)
      << eval.out;

  // A run that was struck goes on with the mask, to the bit.
  const Outcome struck =
      run_tetrad(words("struck", true, {"run.threads=2"}), {"TETRAD_FAILPOINTS=metrics.write=kill@4"});
  EXPECT_EQ(struck.exit_code, -1) << struck.err;
  finish("struck");
  expect_same_run("masked", "struck");
}

TEST_P(TrainingOnDocuments, SaysThatThereIsNothingToMask) {
  const Outcome refused =
      run_tetrad(arguments(GetParam().model, GetParam().recipe, "refused", {"data.document_mask=true"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("document_mask"), std::string::npos) << refused.err;
  Words dry = words("dry", true);
  dry.emplace_back("--dry-run");
  EXPECT_NE(run_tetrad(dry).out.find("documents    masked"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, TrainingOnDocuments,
                         ::testing::Values(Family{"llama_nvfp4", kLlama, "nvfp4"},
                                           Family{"hybrid_bf16", kHybrid, "bf16"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tetrad::testing::train_documents_test
