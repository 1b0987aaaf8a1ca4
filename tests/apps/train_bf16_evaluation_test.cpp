// SPDX-License-Identifier: Apache-2.0
// Runs that are trained in four bits, evaluated in BF16 too.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/process.h"
#include "support/training.h"

namespace tetrad::testing {
namespace {

using Json = nlohmann::json;

class Bf16Evaluation : public Training {
 protected:
  /// Trains, and gives the evaluations in order.
  std::vector<Json> evaluations(const std::string& out, const Words& more) {
    const char* model =
        "model: {pattern: \"*-*-\", hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 48, vocab: 64, "
        "tied: true}\n";
    const Outcome trained = run_tetrad(arguments(model, "nvfp4", out, more));
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    said_ = trained.err;
    std::vector<Json> lines;
    for (const Json& line : metrics(out))
      if (line["kind"] == "eval") lines.push_back(line);
    return lines;
  }

  std::string said_;
};

TEST_F(Bf16Evaluation, TheLastEvaluationIsMadeInBothPrecisions) {
  const std::vector<Json> lines = evaluations("run", {"precision.schedule=[]"});
  ASSERT_EQ(lines.size(), 3U);  // every 4 of 12 steps
  EXPECT_FALSE(lines[0].contains("bf16_loss"));
  EXPECT_FALSE(lines[1].contains("bf16_loss"));
  ASSERT_TRUE(lines[2].contains("bf16_loss"));
  EXPECT_NE(lines[2]["bf16_loss"], lines[2]["loss"]);
  EXPECT_NE(said_.find(" in BF16)"), std::string::npos) << said_;

  // tetrad eval says the same of the checkpoint on the same backend, in one go or in two.
  const auto evaluate = [&](const std::string& precision) {
    const Outcome eval =
        run_tetrad({"eval", folder_.file("run"), "--sequences", "3", "--batch", "2", "--precision", precision,
                    "--backend", "cpu", "--json", "--data", folder_.file("a-heldout")});
    EXPECT_EQ(eval.exit_code, 0) << eval.err;
    return Json::parse(eval.out)["data"].front();
  };
  EXPECT_EQ(evaluate("trained")["loss"], lines[2]["loss"]);
  EXPECT_EQ(evaluate("trained")["bf16_loss"], lines[2]["bf16_loss"]);
  EXPECT_EQ(evaluate("bf16")["loss"], lines[2]["bf16_loss"]);
  EXPECT_FALSE(evaluate("bf16").contains("bf16_loss"));
}

TEST_F(Bf16Evaluation, IsMadeWhenAskedForAndChangesNothing) {
  const std::vector<Json> always = evaluations("always", {"train.eval.bf16=always"});
  ASSERT_EQ(always.size(), 3U);
  EXPECT_TRUE(always[0].contains("bf16_loss"));
  // From half of the tokens on the forward pass is in BF16 anyhow.
  EXPECT_FALSE(always[2].contains("bf16_loss"));
  for (const Json& line : evaluations("never", {"train.eval.bf16=never"}))
    EXPECT_FALSE(line.contains("bf16_loss"));
  EXPECT_TRUE(final_state("always") == final_state("never"));
  const Outcome refused = run_tetrad({"train", folder_.file("config-never.yaml"), "train.eval.bf16=maybe",
                                      "--out", folder_.file("refused")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("never"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace tetrad::testing
