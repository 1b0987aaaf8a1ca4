// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>

#include "support/errors.h"
#include "support/files.h"
#include "support/one_thread.h"
#include "support/tokens.h"
#include "tetrad/core/threads.h"

namespace tetrad {
namespace {

using testing::all_of;
using testing::expect_bad_input;
using testing::is_refused;
using testing::one_thread;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;
using Ids = std::vector<std::int32_t>;

const std::vector<Ids> small_documents = {{1, 2, 3, 0}, {300, 0}, {7, 7, 7, 7, 7, 0}};
const Ids small_tokens = {1, 2, 3, 0, 300, 0, 7, 7, 7, 7, 7, 0};

TokenMetadata write_small(const std::string& name, std::int64_t vocab = 1000) {
  TokenFileWriter writer(name, vocab);
  for (const Ids& document : small_documents) {
    writer.append(document);
    writer.end_document();
  }
  TokenMetadata metadata;
  metadata.tokenizer = "bytes";
  metadata.tokenizer_hash = "0123456789abcdef";
  metadata.bytes = 42;
  return writer.commit(metadata);
}

TEST(TokenFile, ComesBackAsWritten) {
  for (const std::int64_t vocab : {301, 65536, 65537, 200000}) {
    const TemporaryFolder folder;
    const TokenMetadata written = write_small(folder.file("a"), vocab);
    EXPECT_EQ(folder.files(), (std::vector<std::string>{"a.bin", "a.idx", "a.json"}));
    const TokenFile file(folder.file("a"));
    EXPECT_EQ(file.dtype(), vocab <= 65536 ? DType::u16 : DType::i32);
    EXPECT_EQ(all_of(file), small_tokens);
    EXPECT_EQ(file.documents(), 3);
    EXPECT_EQ(file.metadata(), written);
    EXPECT_EQ(written.tokens, 12);
    EXPECT_EQ(written.documents, 3);
    EXPECT_EQ(written.vocab, vocab);
    EXPECT_EQ(read_file(folder / "a.bin").size(), vocab <= 65536 ? 24U : 48U);
    Ids part(3);
    file.read(3, part);
    EXPECT_EQ(part, (Ids{0, 300, 0}));
    EXPECT_EQ(TokenFile(folder.file("a.bin")).size(), 12);
    EXPECT_EQ(TokenFile(folder.file("a.idx")).name(), folder.file("a"));
    EXPECT_THROW(file.read(10, part), Error);
    EXPECT_THROW(file.read(-1, part), Error);
  }
}

TEST(TokenFile, UnigramEntropyIsThatOfTheFrequencies) {
  const TemporaryFolder folder;
  const auto p = [](double count) { return -count / 12 * std::log(count / 12); };
  EXPECT_NEAR(write_small(folder.file("a")).unigram_entropy, 4 * p(1) + p(3) + p(5), 1e-12);
}

/// The bytes, written down from the format's description and not by our writer.
std::string index_bytes(std::uint8_t dtype, const std::vector<std::int32_t>& lengths,
                        const std::vector<std::int64_t>& pointers,
                        const std::vector<std::int64_t>& documents) {
  std::string bytes("MMIDIDX\0\0", 9);
  const auto put = [&](auto value) {
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    bytes.append(raw, sizeof(value));
  };
  put(std::uint64_t{1});
  put(dtype);
  put(std::uint64_t{lengths.size()});
  put(std::uint64_t{documents.size()});
  for (const auto value : lengths) put(value);
  for (const auto value : pointers) put(value);
  for (const auto value : documents) put(value);
  return bytes;
}

TEST(TokenFile, IsMegatronsFormat) {
  const TemporaryFolder folder;
  write_small(folder.file("a"));
  EXPECT_EQ(read_file(folder / "a.idx"), index_bytes(8, {4, 2, 6}, {0, 8, 12}, {0, 1, 2, 3}));
  // Foreign files have no sidecar, and documents of several sequences.
  write_file(folder / "b.bin", std::string("\1\0\0\0\2\0\0\0\3\0\0\0", 12));
  write_file(folder / "b.idx", index_bytes(4, {1, 0, 2}, {0, 4, 4}, {0, 2, 3}));
  const TokenFile file(folder.file("b"));
  EXPECT_EQ(all_of(file), (Ids{1, 2, 3}));
  EXPECT_EQ(file.documents(), 2);
  EXPECT_FALSE(file.metadata());
}

TEST(TokenFile, RefusesInconsistentIndices) {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", std::string(12, '\0'));
  const auto refused = [&](const std::string& index, const std::string& word) {
    write_file(folder / "a.idx", index);
    expect_bad_input([&] { TokenFile file(folder.file("a")); }, {"a.idx", word});
  };
  const auto with = [](std::size_t offset, std::uint64_t value) {
    std::string bytes = index_bytes(8, {2, 4}, {0, 4}, {0, 2});
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  };
  refused("", "too few");
  refused("MMIDIDX", "too few");
  refused(std::string(60, 'x'), "MMIDIDX");
  refused(with(9, 2), "version 2");
  refused(index_bytes(1, {2, 4}, {0, 4}, {0, 2}), "dtype 1");
  refused(with(18, UINT64_MAX), "do not fit");
  refused(with(18, UINT64_MAX / 12 + 1), "do not fit");  // times 12 it wraps to a small number
  refused(with(26, UINT64_MAX / 8 + 2), "do not fit");
  refused(index_bytes(8, {2, 4}, {0, 4}, {0, 2}) + "x", "do not fit");
  refused(index_bytes(8, {-2, 4}, {0, 4}, {0, 2}), "length -2");
  refused(index_bytes(8, {2, 4}, {0, 6}, {0, 2}), "begins at byte 6");
  refused(index_bytes(8, {2, 4}, {0, -4}, {0, 2}), "begins at byte -4");
  refused(index_bytes(8, {2, 5}, {0, 4}, {0, 2}), "cut short");
  refused(index_bytes(8, {2, 3}, {0, 4}, {0, 2}), "do not belong together");
  refused(index_bytes(4, {2, 4}, {0, 8}, {0, 2}), "cut short");
  refused(index_bytes(8, {2, 4}, {0, 4}, {1, 2}), "out of order");
  refused(index_bytes(8, {2, 4}, {0, 4}, {0, 2, 1, 2}), "out of order");
  refused(index_bytes(8, {2, 4}, {0, 4}, {0, 3}), "out of order");
  refused(index_bytes(8, {2, 4}, {0, 4}, {0, 1}), "last document");
  refused(index_bytes(8, {2, 4}, {0, 4}, {}), "last document");
  expect_bad_input([&] { TokenFile file(folder.file("absent")); }, {"absent.bin", "No such file"});
}

TEST(TokenFile, CutAnywhereItIsRefused) {
  const TemporaryFolder folder;
  write_small(folder.file("a"));
  for (const char* name : {"a.idx", "a.bin", "a.json"}) {
    const std::string whole = read_file(folder / name);
    const std::size_t end = std::string_view(name) == "a.json" ? whole.size() - 1 : whole.size();
    for (std::size_t size = 0; size < end; ++size) {
      write_file(folder / name, std::string_view(whole).substr(0, size));
      ASSERT_TRUE(is_refused([&] { TokenFile file(folder.file("a")); })) << name << " " << size;
    }
    write_file(folder / name, whole);
  }
  EXPECT_EQ(all_of(TokenFile(folder.file("a"))), small_tokens);
}

TEST(TokenFile, AnyFlippedByteIsRefusedOrChangesNothing) {
  const TemporaryFolder folder;
  write_small(folder.file("a"));
  int refused = 0;
  for (const char* name : {"a.idx", "a.json"}) {
    const std::string whole = read_file(folder / name);
    for (std::size_t i = 0; i < whole.size(); ++i)
      for (const int flip : {1, 0x90}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        write_file(folder / name, damaged);
        const bool was_refused =
            is_refused([&] { ASSERT_EQ(all_of(TokenFile(folder.file("a"))), small_tokens); });
        refused += was_refused ? 1 : 0;
        // Everything but which sequences are a document can be seen to be wrong.
        const bool is_boundary = i >= whole.size() - 3 * 8;
        ASSERT_TRUE(was_refused || is_boundary || std::string_view(name) == "a.json") << i;
      }
    write_file(folder / name, whole);
  }
  EXPECT_GT(refused, 300);
}

TEST(TokenFile, ASidecarOfAnotherFileIsNoticed) {
  const TemporaryFolder folder;
  write_small(folder.file("a"));
  TokenMetadata other;
  other.vocab = 10;
  other.tokens = 13;
  write_file(folder / "a.json", to_json_text(other));
  expect_bad_input([&] { TokenFile file(folder.file("a")); }, {"a.json", "13", "12"});
}

TEST(TokenFile, ValidateNamesTheFirstIdThatIsTooLarge) {
  const TemporaryFolder folder;
  for (const std::int64_t vocab : {60000, 100000}) {  // 16 and 32 bits
    TokenFileWriter writer(folder.file("a"), vocab);
    Ids tokens(3'000'000, 5);
    tokens[2'999'999] = 700;
    tokens[1'500'001] = 900;
    tokens[2'100'000] = 900;
    writer.append(tokens);
    writer.commit({});
    const TokenFile file(folder.file("a"));
    for (const int count : {1, 3}) {
      Threads threads(count);
      EXPECT_EQ(file.survey(threads).range.highest, 900);
      EXPECT_EQ(file.survey(threads).range.lowest, 5);
      EXPECT_NO_THROW(file.validate(threads, 901));
      expect_bad_input([&] { file.validate(threads, 900); },
                       {"a.bin", "token 1500001 ", "id 900", "vocabulary"});
      expect_bad_input([&] { file.validate(threads, 5); }, {"token 0 ", "id 5"});
    }
  }
  write_file(folder / "b.bin", std::string("\1\0\0\0\xFF\xFF\xFF\xFF", 8));
  write_file(folder / "b.idx", index_bytes(4, {2}, {0}, {0, 1}));
  expect_bad_input([&] { TokenFile(folder.file("b")).validate(one_thread(), 1LL << 31); },
                   {"token 1 ", "id -1"});
}

TEST(TokenFileWriter, WithoutCommitNothingRemainsAndNothingIsReplaced) {
  const TemporaryFolder folder;
  { TokenFileWriter writer(folder.file("a"), 10); }
  EXPECT_TRUE(folder.files().empty());
  write_small(folder.file("a"));
  {
    TokenFileWriter writer(folder.file("a"), 10);
    writer.append(Ids{1, 2, 3});
    EXPECT_THROW(writer.append(Ids{10}), Error);
    EXPECT_THROW(writer.append(Ids{-1}), Error);
  }
  EXPECT_EQ(all_of(TokenFile(folder.file("a"))), small_tokens);
  expect_bad_input([&] { TokenFileWriter writer(folder.file("absent/a"), 10); }, {"absent"});
}

TEST(TokenFileWriter, AFullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  write_small(folder.file("a"));
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 1 << 20;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    TokenFileWriter writer(folder.file("a"), 10);
    writer.append(Ids(4'000'000, 3));
    writer.commit({});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::failure) << error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"a.bin", "a.idx", "a.json"}));
  EXPECT_EQ(all_of(TokenFile(folder.file("a"))), small_tokens);
}

TEST(TokenFileWriter, EmptyDocumentsAndFiles) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder.file("a"), 10);
  writer.end_document();
  writer.commit({});
  const TokenFile file(folder.file("a"));
  EXPECT_EQ(file.size(), 0);
  EXPECT_EQ(file.documents(), 0);
  EXPECT_NO_THROW(file.validate(one_thread(), 1));
}

}  // namespace
}  // namespace tetrad
