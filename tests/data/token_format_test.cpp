// SPDX-License-Identifier: Apache-2.0
// Token files of llm.c and nanoGPT, and what becomes of them.

#include "tetrad/data/token_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/files.h"
#include "support/one_thread.h"
#include "support/tokens.h"
#include "tetrad/data/convert.h"
#include "tetrad/data/dataset.h"

namespace tetrad {
namespace {

using testing::all_of;
using testing::expect_bad_input;
using testing::is_refused;
using testing::one_thread;
using testing::TemporaryFolder;
using testing::write_file;
using Ids = std::vector<std::int32_t>;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// From the format's description: 256 numbers of 32 bits, then the tokens.
template <typename T>
std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + bytes_of(tokens);
}

const std::vector<std::uint16_t> narrow_tokens = {50256, 5, 7, 0, 65535, 50256, 9};
const std::vector<std::uint32_t> wide_tokens = {128000, 5, 70000, 0, 128001, 9};

TEST(TokenFormat, LlmcOfBothVersions) {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", llmc(20240520, 1, 7, narrow_tokens));
  for (const char* name : {"a.bin", "a"}) {
    const TokenFile file(folder.file(name));
    EXPECT_EQ(file.format(), TokenFormat::llmc);
    EXPECT_EQ(file.dtype(), DType::u16);
    EXPECT_EQ(all_of(file), Ids(narrow_tokens.begin(), narrow_tokens.end()));
    EXPECT_EQ(file.documents(), 1);
    EXPECT_EQ(file.survey(one_thread()).range.highest, 65535);
    EXPECT_FALSE(file.metadata());
  }
  write_file(folder / "b.bin", llmc(20240801, 7, 6, wide_tokens));
  const TokenFile wide(folder.file("b"));
  EXPECT_EQ(wide.dtype(), DType::i32);
  EXPECT_EQ(all_of(wide), Ids(wide_tokens.begin(), wide_tokens.end()));
  wide.validate(one_thread(), 128002);
  expect_bad_input([&] { wide.validate(one_thread(), 128001); }, {"b.bin", "128001", "token 4"});
  write_file(folder / "c.bin", llmc(20240801, 7, 2, std::vector<std::uint32_t>{7, 4000000000}));
  expect_bad_input([&] { TokenFile(folder.file("c")).validate(one_thread(), INT32_MAX); },
                   {"c.bin", "4000000000", "token 1"});
}

TEST(TokenFormat, NanoGptIsTakenAtItsWord) {
  const TemporaryFolder folder;
  write_file(folder / "train.bin", bytes_of(narrow_tokens));
  const TokenFile file(folder.file("train.bin"));
  EXPECT_EQ(file.format(), TokenFormat::raw);
  EXPECT_EQ(all_of(file), Ids(narrow_tokens.begin(), narrow_tokens.end()));
  expect_bad_input([&] { TokenFile without_suffix(folder.file("train")); }, {"train.idx", "nanoGPT", ".bin"});
  write_file(folder / "empty.bin", "");
  EXPECT_EQ(TokenFile(folder.file("empty.bin")).size(), 0);
  EXPECT_EQ(TokenFile(folder.file("empty.bin")).documents(), 0);
}

TEST(TokenFormat, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& word) {
    write_file(folder / "a.bin", bytes);
    expect_bad_input([&] { TokenFile file(folder.file("a.bin")); }, {"a.bin", word});
  };
  refused(llmc(20240520, 1, 8, narrow_tokens), "cut short");
  refused(llmc(20240520, 1, 6, narrow_tokens), "6 tokens");
  refused(llmc(20240520, 1, -1, narrow_tokens), "-1");
  refused(llmc(20240520, 1, INT32_MAX, narrow_tokens), "cut short");
  refused(llmc(20240520, 2, 7, narrow_tokens), "version 2");
  refused(llmc(20240801, 1, 6, wide_tokens), "version 1");
  refused(llmc(20240520, 1, 7, narrow_tokens).substr(0, 500), "cut short");
  refused("odd", "odd number");
  refused(bytes_of(std::vector<std::uint32_t>(100, 77)), "32 bits");
  write_file(folder / "a.bin", bytes_of(narrow_tokens));
  write_file(folder / "a.json", "{}");
  expect_bad_input([&] { TokenFile file(folder.file("a.bin")); }, {"a.bin", ".idx", "lost"});
}

TEST(TokenFormat, CutAnywhereLlmcIsRefused) {
  const TemporaryFolder folder(testing::memory_folder());
  const std::string whole = llmc(20240801, 7, 6, wide_tokens);
  for (std::size_t size = 12; size < whole.size(); ++size) {
    write_file(folder / "a.bin", whole.substr(0, size));
    ASSERT_TRUE(is_refused([&] { TokenFile file(folder.file("a")); })) << size;
  }
}

TEST(TokenFormat, ForeignFilesAreSourcesOfTrainingData) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> tokens(100);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i + 1);
  write_file(folder / "a.bin", llmc(20240520, 1, 100, tokens));
  write_file(folder / "b.bin", bytes_of(tokens));
  DataConfig config;
  config.sources["a"] = {folder.file("a.bin"), ""};
  config.sources["b"] = {folder.file("b.bin"), folder.file("a.bin")};
  DatasetOptions options = {.sequence = 9, .vocab = 101, .samples = 20, .seed = 1};
  Dataset dataset(one_thread(), config, options);
  EXPECT_EQ(dataset.source("a").count(), 11);
  Ids inputs(36);
  Ids targets(36);
  dataset.next(4, inputs, targets);
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(targets[i], inputs[i] + 1);
  options.vocab = 100;
  expect_bad_input([&] { Dataset(one_thread(), config, options); }, {"100", "vocab"});
}

TEST(ConvertTokens, JoinsFilesOfAnyFormat) {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", llmc(20240520, 1, 7, narrow_tokens));
  write_file(folder / "b.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3}));
  const std::vector<std::string> inputs = {folder.file("a.bin"), folder.file("b.bin")};
  const TokenMetadata metadata = convert_tokens(one_thread(), inputs, {.output = folder.file("out/joined")});
  EXPECT_EQ(metadata.tokens, 10);
  EXPECT_EQ(metadata.documents, 2);
  EXPECT_EQ(metadata.vocab, 65536);
  const TokenFile joined(folder.file("out/joined"));
  EXPECT_EQ(joined.format(), TokenFormat::megatron);
  EXPECT_EQ(all_of(joined), (Ids{50256, 5, 7, 0, 65535, 50256, 9, 1, 2, 3}));
  EXPECT_EQ(joined.document_ends(), (std::vector<std::int64_t>{7, 10}));

  // Again, with documents that end behind a token.
  const std::vector<std::string> again = {folder.file("out/joined")};
  const TokenMetadata cut = convert_tokens(
      one_thread(), again, {.output = folder.file("cut"), .vocab = 70000, .document_end = 50256});
  EXPECT_EQ(cut.documents, 4);
  EXPECT_EQ(cut.vocab, 70000);
  const TokenFile file(folder.file("cut"));
  EXPECT_EQ(file.dtype(), DType::i32);
  EXPECT_EQ(all_of(file), all_of(joined));
  EXPECT_EQ(file.document_ends(), (std::vector<std::int64_t>{1, 6, 7, 10}));
}

TEST(ConvertTokens, KeepsWhatIsKnownAndChecksTheRest) {
  const TemporaryFolder folder;
  const ByteTokenizer bytes;
  write_file(folder / "a.bin", bytes_of(std::vector<std::uint16_t>{72, 105, 0}));
  write_file(folder / "high.bin", bytes_of(std::vector<std::uint16_t>{72, 300}));
  const std::vector<std::string> input = {folder.file("a.bin")};
  const ConvertOptions known = {.output = folder.file("b"), .tokenizer = &bytes, .tokenizer_spec = "bytes"};
  EXPECT_EQ(convert_tokens(one_thread(), input, known).vocab, 256);
  const std::vector<std::string> megatron = {folder.file("b")};
  const TokenMetadata kept = convert_tokens(one_thread(), megatron, {.output = folder.file("c")});
  EXPECT_EQ(kept.tokenizer, "bytes");
  EXPECT_EQ(kept.tokenizer_hash, bytes.hash());
  EXPECT_EQ(kept.vocab, 256);
  const std::vector<std::string> high = {folder.file("b"), folder.file("high.bin")};
  expect_bad_input([&] { convert_tokens(one_thread(), high, {.output = folder.file("d")}); },
                   {"high.bin", "300", "256"});
  expect_bad_input([&] { convert_tokens(one_thread(), input, {.output = folder.file("d"), .vocab = 100}); },
                   {"105"});
  expect_bad_input([&] { convert_tokens(one_thread(), {}, {.output = folder.file("d")}); },
                   {"no token file"});
  for (const char* output : {"a", "a.bin", "a.idx", "./a"})
    expect_bad_input([&] { convert_tokens(one_thread(), input, {.output = folder.file(output)}); },
                     {"a.bin", "overwritten"});
  EXPECT_FALSE(std::filesystem::exists(folder / "d.bin"));
}

}  // namespace
}  // namespace tetrad
