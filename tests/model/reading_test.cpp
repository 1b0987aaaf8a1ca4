// SPDX-License-Identifier: Apache-2.0
// A model that only reads beside one that could train: the same losses and logits, in less memory.

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/matrices.h"
#include "support/models.h"
#include "tetrad/model/decoder.h"

namespace tetrad::testing::reading_test {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSequence = 16;

class Reading : public ::testing::TestWithParam<std::tuple<std::string, bool, std::string>> {
 protected:
  Backend& device() { return backend(std::get<0>(GetParam())); }
  ModelConfig model() const { return std::get<1>(GetParam()) ? tiny_hybrid() : tiny_llama(); }
  Recipe recipe() const {
    PrecisionConfig config;
    config.recipe = std::get<2>(GetParam());
    config.high_precision.first = 0;
    config.high_precision.last = 0;
    return {config, model().blocks()};
  }
};

TEST_P(Reading, GivesTheSameInLessMemory) {
  const Recipe recipe = this->recipe();
  Decoder whole(device(), model(), kBatch, kSequence);
  Decoder reader(device(), model(), kBatch, kSequence, DType::bf16,
                 {.recompute = Recompute::full, .reads_only = true});
  EXPECT_LT(reader.activation_bytes(), whole.activation_bytes());
  for (const auto& parameter : reader.parameters()) EXPECT_EQ(parameter->gradient.bytes().size(), 0U);

  Pass pass;
  pass.recipe = &recipe;
  std::vector<std::int32_t> tokens(kBatch * kSequence);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 17 % static_cast<std::size_t>(model().vocab));
  std::vector<float> expected(tokens.size());
  std::vector<float> losses(tokens.size());
  for (const std::uint64_t seed : {1U, 2U}) {  // other weights: what was made of the old ones is made anew
    whole.initialize(seed);
    reader.initialize(seed);
    whole.evaluate(pass, tokens, tokens, expected);
    reader.evaluate(pass, tokens, tokens, losses);
    EXPECT_EQ(losses, expected);
    Session first = whole.start(kSequence);
    Session second = reader.start(kSequence);
    for (const std::size_t count : {7U, 1U, 3U}) {
      const std::span<const std::int32_t> part(tokens.data() + first.length(), count);
      EXPECT_EQ(reader.extend(pass, second, part, false), whole.extend(pass, first, part, false));
    }
  }
  expect_bad_input([&] { reader.train(pass, tokens, tokens, 1, losses); }, {"no memory for gradients"});
}

INSTANTIATE_TEST_SUITE_P(All, Reading,
                         ::testing::Combine(::testing::ValuesIn(backend_names()), ::testing::Bool(),
                                            ::testing::Values("bf16", "fp8", "mxfp4", "nvfp4")),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param) ? "_hybrid_" : "_llama_") +
                                  std::get<2>(test.param);
                         });

}  // namespace
}  // namespace tetrad::testing::reading_test
