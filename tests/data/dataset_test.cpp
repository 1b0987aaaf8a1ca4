// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/dataset.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/files.h"
#include "support/one_thread.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using testing::one_thread;
using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

/// A source whose tokens say where they are from: base, base + 1, …
void write_counting(const std::string& name, std::int32_t base, std::int32_t count,
                    const std::string& hash = "h") {
  TokenFileWriter writer(name, base + count);
  Ids tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(base + i);
  writer.append(tokens);
  TokenMetadata metadata;
  if (!hash.empty()) {
    metadata.tokenizer = "gone.json";
    metadata.tokenizer_hash = hash;
    metadata.bytes = 3 * std::int64_t{count};
  }
  writer.commit(metadata);
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    write_counting(folder_.file("a"), 0, 1001);
    write_counting(folder_.file("b"), 2000, 58);
    write_counting(folder_.file("b-heldout"), 3000, 30);
    config_.sources["a"] = {folder_.file("a"), ""};
    config_.sources["b"] = {folder_.file("b"), folder_.file("b-heldout")};
  }

  DatasetOptions options_{.sequence = 10, .vocab = 4000, .samples = 400, .seed = 3};
  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(DatasetTest, BatchesEqualDirectReads) {
  config_.phases = {{1.0, {{"a", 3}, {"b", 1}}}};
  Dataset dataset(one_thread(), config_, options_);
  EXPECT_EQ(dataset.source("a").count(), 100);
  EXPECT_EQ(dataset.source("b").count(), 5);
  Mixture order({{"a", 100}, {"b", 5}}, {{1.0, {3, 1}}}, 400, 3);
  for (int batch = 0; batch < 20; ++batch) {
    Ids inputs(40);
    Ids targets(40);
    dataset.next(4, inputs, targets);
    for (std::size_t row = 0; row < 4; ++row) {
      const Sample sample = order.next();
      for (std::size_t i = 0; i < 10; ++i) {
        const auto expected = static_cast<std::int32_t>((sample.source == 0 ? 0 : 2000) + sample.index * 10 +
                                                        static_cast<std::int64_t>(i));
        ASSERT_EQ(inputs[row * 10 + i], expected);
        ASSERT_EQ(targets[row * 10 + i], expected + 1);
      }
    }
  }
}

TEST_F(DatasetTest, TheOrderDoesNotDependOnTheSizeOfBatches) {
  Dataset one(one_thread(), config_, options_);
  Dataset many(one_thread(), config_, options_);
  Ids inputs(400);
  Ids targets(400);
  one.next(40, inputs, targets);
  for (std::size_t i = 0; i < 40; ++i) {
    Ids input(10);
    Ids target(10);
    many.next(1, input, target);
    ASSERT_EQ(input, Ids(inputs.begin() + static_cast<std::ptrdiff_t>(i * 10),
                         inputs.begin() + static_cast<std::ptrdiff_t>(i * 10 + 10)));
  }
  EXPECT_EQ(one.state(), many.state());
}

TEST_F(DatasetTest, WithoutPhasesSourcesGoByTheirSize) {
  Dataset dataset(one_thread(), config_, options_);
  Ids inputs(1050);
  Ids targets(1050);
  dataset.next(105, inputs, targets);
  std::int64_t from_b = 0;
  for (std::size_t row = 0; row < 105; ++row) from_b += inputs[row * 10] >= 2000 ? 1 : 0;
  EXPECT_EQ(from_b, 5);
  EXPECT_EQ(dataset.mixture().epoch(0), 1);
  EXPECT_EQ(dataset.mixture().epoch(1), 1);
}

TEST_F(DatasetTest, RestoresFromJson) {
  Dataset whole(one_thread(), config_, options_);
  Ids expected(500);
  Ids targets(500);
  whole.next(50, expected, targets);
  const nlohmann::json state = nlohmann::json::parse(whole.state().dump());
  whole.next(50, expected, targets);
  Dataset resumed(one_thread(), config_, options_);
  resumed.restore(state);
  Ids got(500);
  resumed.next(50, got, targets);
  EXPECT_EQ(got, expected);
  expect_bad_input([&] { resumed.restore(nlohmann::json("x")); }, {"saved position"});
}

/// Documents of these lengths.
void write_documents(const std::string& name, std::initializer_list<int> lengths) {
  TokenFileWriter writer(name, 10);
  for (const int length : lengths) {
    writer.append(Ids(static_cast<std::size_t>(length), 7));
    writer.end_document();
  }
  writer.commit({});
}

TEST_F(DatasetTest, SaysWhereTheDocumentsOfASequenceBegin) {
  write_documents(folder_.file("documents"), {3, 1, 6, 15, 1, 4, 1});
  config_.sources = {{"c", {folder_.file("documents"), folder_.file("documents")}}};
  config_.document_mask = true;
  Dataset dataset(one_thread(), config_, options_);
  ASSERT_TRUE(dataset.masks_documents());
  const std::vector<Ids> expected = {{0, 0, 0, 3, 4, 4, 4, 4, 4, 4},  // one begins with the next sequence
                                     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},  // and is longer than that
                                     {0, 0, 0, 0, 0, 5, 6, 6, 6, 6}};
  const TokenSequences* heldout = dataset.heldout("c");
  ASSERT_EQ(heldout->count(), 3);
  Ids inputs(10);
  Ids targets(10);
  Ids starts(10);
  for (std::size_t i = 0; i < 3; ++i) {
    heldout->read(static_cast<std::int64_t>(i), inputs, targets, starts);
    EXPECT_EQ(starts, expected[i]) << i;
  }
  Mixture order({{"c", 3}}, {{1.0, {1}}}, 400, 3);
  for (int i = 0; i < 3; ++i) {
    dataset.next(1, inputs, targets, starts);
    EXPECT_EQ(starts, expected[static_cast<std::size_t>(order.next().index)]);
  }
  EXPECT_THROW(dataset.next(1, inputs, targets), Error) << "nobody is to forget the mask";
}

TEST_F(DatasetTest, MasksNoDocumentsWhereThereAreNone) {
  config_.document_mask = true;
  expect_bad_input([&] { Dataset(one_thread(), config_, options_); }, {"document_mask", "single document"});
  testing::write_file(folder_.file("raw.bin"), std::string(200, '\1'));
  config_.sources = {{"raw", {folder_.file("raw.bin"), ""}}};
  expect_bad_input([&] { Dataset(one_thread(), config_, options_); }, {"data.sources.raw", "--document-end"});
}

TEST_F(DatasetTest, HeldOutTokens) {
  const Dataset dataset(one_thread(), config_, options_);
  EXPECT_EQ(dataset.heldout("a"), nullptr);
  const TokenSequences* heldout = dataset.heldout("b");
  ASSERT_NE(heldout, nullptr);
  EXPECT_EQ(heldout->count(), 2);  // 30 tokens: the third sequence would need a 31st
  Ids inputs(10);
  Ids targets(10);
  heldout->read(1, inputs, targets);
  EXPECT_EQ(inputs.front(), 3010);
  EXPECT_EQ(targets.back(), 3020);
  EXPECT_EQ(heldout->bytes_per_token(), 3.0);
  EXPECT_FALSE(heldout->entropy());
  EXPECT_THROW(heldout->read(2, inputs, targets), Error);
  EXPECT_EQ(dataset.tokenizer(), nullptr);
  EXPECT_EQ(dataset.tokenizer_hash(), "h");
}

TEST_F(DatasetTest, SaysWhatIsWrong) {
  const auto refused = [&](const std::function<void(DataConfig&, DatasetOptions&)>& change,
                           const std::vector<std::string>& words) {
    DataConfig config = config_;
    DatasetOptions options = options_;
    change(config, options);
    expect_bad_input([&] { const Dataset dataset(one_thread(), config, options); }, words);
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  refused([](DataConfig& c, auto&) { c.sources.clear(); }, {"data.sources"});
  refused([](DataConfig& c, auto&) { c.sources["a"].path = "/absent/x"; }, {"/absent/x.bin"});
  refused([](DataConfig& c, auto&) { c.sources["a"].path = ""; }, {"data.sources.a"});
  refused([](DataConfig& c, auto&) { c.sources["b"].heldout = "/absent/x"; }, {"/absent/x.bin"});
  refused([](auto&, DatasetOptions& o) { o.vocab = 3000; }, {"data.sources.b", "3030", "model.vocab"});
  refused([](auto&, DatasetOptions& o) { o.sequence = 58; }, {"data.sources.b", "58", "too few"});
  refused([](auto&, DatasetOptions& o) { o.sequence = 0; }, {"train.sequence"});
  refused([](auto&, DatasetOptions& o) { o.vocab = 0; }, {"model.vocab"});
  refused([](DataConfig& c, auto&) { c.phases = {{1.0, {{"x", 1}}}}; }, {"\"x\"", "a, b"});
  refused([](DataConfig& c, auto&) { c.phases = {{1.0, {}}}; }, {"empty"});
  refused([](DataConfig& c, auto&) { c.phases = {{1.0, {{"a", 0}}}}; }, {"data.phases[0].mix.a"});
  refused([](DataConfig& c, auto&) { c.phases = {{1.0, {{"a", -1}}}}; }, {"-1"});
  refused([kNaN](DataConfig& c, auto&) { c.phases = {{1.0, {{"a", kNaN}}}}; }, {"nan"});
  refused([](DataConfig& c, auto&) { c.phases = {{0.7, {{"a", 1}}}, {0.6, {{"a", 1}}}}; }, {"phase 1"});
  refused([](DataConfig& c, auto&) { c.phases = {{0.7, {{"a", 1}}}}; }, {"until 0.7"});
  refused([](DataConfig& c, auto&) { c.tokenizer = "bytes"; }, {"another tokenizer", "bytes"});
  write_counting(folder_.file("other"), 0, 100, "other");
  refused([&](DataConfig& c, auto&) { c.sources["c"] = {folder_.file("other"), ""}; }, {"another tokenizer"});
}

TEST_F(DatasetTest, ForeignFilesAreCheckedTokenByToken) {
  std::filesystem::remove(folder_ / "b.json");
  std::filesystem::remove(folder_ / "b-heldout.json");
  const Dataset dataset(one_thread(), config_, options_);
  EXPECT_FALSE(dataset.heldout("b")->bytes_per_token());
  options_.vocab = 2050;
  expect_bad_input([&] { const Dataset d(one_thread(), config_, options_); },
                   {"b.bin", "token 50 ", "id 2050"});
}

TEST(DatasetTokenizer, IsWhatTheFilesSay) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder.file("a"), 256);
  writer.append(ByteTokenizer().encode("some text, long enough"));
  TokenMetadata metadata;
  metadata.tokenizer = "bytes";
  metadata.tokenizer_hash = ByteTokenizer().hash();
  writer.commit(metadata);
  DataConfig config;
  config.sources["a"] = {folder.file("a"), ""};
  const Dataset dataset(one_thread(), config, {.sequence = 4, .vocab = 256, .samples = 10, .seed = 1});
  ASSERT_NE(dataset.tokenizer(), nullptr);
  EXPECT_EQ(dataset.tokenizer()->description(), "bytes");
  config.tokenizer = "bytes";
  EXPECT_NO_THROW(Dataset(one_thread(), config, {.sequence = 4, .vocab = 256, .samples = 10, .seed = 1}));
}

}  // namespace
}  // namespace tetrad
