// SPDX-License-Identifier: Apache-2.0
// Rows of a table, and the gradients that come back to them.

#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::embedding_test {
namespace {

class Embedding : public OpTest {};

std::vector<std::int32_t> some_tokens(std::int64_t count, std::int32_t vocab) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<std::int32_t> pick(0, vocab - 1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) token = pick(generator);
  return tokens;
}

TEST_P(Embedding, ForwardCopiesRowsAndRoundsThemOnce) {
  for (const std::int64_t width : {1, 7, 130}) {
    constexpr std::int32_t kVocab = 11;
    constexpr std::int64_t kTokens = 300;
    const std::vector<float> table = to_f32(random_values(kVocab * width, 1));
    std::vector<std::int32_t> tokens = some_tokens(kTokens, kVocab);
    tokens[0] = 0;
    tokens[1] = kVocab - 1;
    TestMatrix out(storage(), kTokens, width);
    device().embedding(EmbeddingForward{tokens.data(), table.data(), kVocab, out.mutable_view()});
    std::vector<double> expected;
    for (const std::int32_t token : tokens)
      for (std::int64_t i = 0; i < width; ++i) {
        const float value = table[static_cast<std::size_t>(token * width + i)];
        expected.push_back(static_cast<double>(dtype() == DType::bf16 ? round_to_bf16(value) : value));
      }
    EXPECT_EQ(out.values(), expected);
    EXPECT_TRUE(out.guards_untouched());
  }
}

TEST_P(Embedding, BackwardAddsEveryRow) {
  for (const std::int64_t width : {1, 7, 130}) {
    constexpr std::int32_t kVocab = 5;  // so that every row is added to many times
    constexpr std::int64_t kTokens = 200;
    const std::vector<std::int32_t> tokens = some_tokens(kTokens, kVocab);
    const TestMatrix dout(storage(), kTokens, width, random_values(kTokens * width, 1));
    std::vector<float> dtable = to_f32(random_values(kVocab * width, 2));
    std::vector<double> expected = to_f64(dtable);
    std::vector<float> in_order = dtable;
    const std::vector<double> gradients = dout.values();
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::int64_t i = 0; i < width; ++i) {
        const auto place = static_cast<std::size_t>(tokens[t] * width + i);
        const double gradient = gradients[t * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)];
        expected[place] += gradient;
        in_order[place] += static_cast<float>(gradient);
      }
    device().embedding(EmbeddingBackward{tokens.data(), dout.view(), kVocab, dtable.data()});
    EXPECT_TRUE(close(dtable, expected, 1e-6));
    if (device().name() == "cpu") {
      EXPECT_EQ(dtable, in_order) << "the CPU adds in the order of the tokens";
    }
  }
}

TEST_P(Embedding, DoesNotDependOnThreads) {
  const std::vector<std::int32_t> tokens = some_tokens(500, 9);
  const TestMatrix dout(storage(), 500, 200, random_values(500 * 200, 1));
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    std::vector<float> dtable(9 * 200);
    on.embedding(EmbeddingBackward{tokens.data(), dout.view(), 9, dtable.data()});
    return dtable;
  });
}

TEST_P(Embedding, RefusesTokensOutsideTheVocabularyAndSaysWhich) {
  if (device().name() != "cpu") GTEST_SKIP() << "ids on a device are checked before they are copied there";
  constexpr std::int32_t kVocab = 4;
  std::vector<float> table(kVocab * 8);
  TestMatrix out(storage(), 3, 8, random_values(24, 1));
  for (const std::int32_t bad :
       {kVocab, -1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    const std::vector<std::int32_t> tokens = {0, 3, bad};
    const auto message = [&](const auto& op) -> std::string {
      try {
        device().embedding(op);
      } catch (const Error& error) {
        return error.what();
      }
      return "no error";
    };
    for (const std::string& text :
         {message(EmbeddingForward{tokens.data(), table.data(), kVocab, out.mutable_view()}),
          message(EmbeddingBackward{tokens.data(), out.view(), kVocab, table.data()})}) {
      EXPECT_NE(text.find("token 2 "), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(bad)), std::string::npos) << text;
      EXPECT_NE(text.find('3'), std::string::npos) << text;
    }
    EXPECT_EQ(table, std::vector<float>(kVocab * 8)) << "nothing may be added before the check";
  }
}

TETRAD_INSTANTIATE_OP_TEST(Embedding);

}  // namespace
}  // namespace tetrad::testing::embedding_test
