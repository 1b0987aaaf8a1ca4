// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "support/file_size_limit.h"
#include "support/files.h"
#include "tetrad/core/error.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of;
using testing::FileSizeLimit;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The bytes of a file with this header and this much data, whatever the header says.
std::string file_of(std::string_view header, std::size_t data_bytes = 0) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file.append(header).append(data_bytes, 'd');
}

SafetensorsHeader parse(std::string_view file) {
  return parse_safetensors_header(bytes_of(file), "some.safetensors");
}

/// The action must throw Error with this exit code and with all these words in its message.
void expect_error(const std::function<void()>& action, ExitCode exit_code,
                  const std::vector<std::string>& words) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.exit_code(), exit_code) << message;
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << word << " in: " << message;
    for (const char c : message)
      EXPECT_GE(static_cast<unsigned char>(c), ' ') << "control character in: " << message;
    EXPECT_LT(message.size(), 1000U);
    return;
  }
  ADD_FAILURE() << "no error, wanted: " << words.front();
}

void expect_bad_input(std::string_view file, std::vector<std::string> words) {
  words.emplace_back("some.safetensors");
  expect_error([&] { parse(file); }, ExitCode::bad_input, words);
}

/// A header with the one tensor "t" and this text for its entry.
void expect_entry_refused(std::string_view entry, std::vector<std::string> words,
                          std::size_t data_bytes = 4) {
  words.emplace_back("\"t\"");
  expect_bad_input(file_of(fmt::format("{{\"t\":{}}}", entry), data_bytes), words);
}

constexpr std::string_view kGoodHeader =
    R"({"__metadata__":{"k":"v"},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}} )";

// ---- Reader: what is good ----

TEST(Safetensors, ParsesKnownBytes) {
  const SafetensorsHeader header = parse(file_of(kGoodHeader, 7));
  EXPECT_EQ(header.data_begin, 8 + kGoodHeader.size());
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"k", "v"}}));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::bf16);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(header.tensors[0].end, 4U);
  EXPECT_EQ(header.tensors[1].name, "e");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.find("b"), &header.tensors[2]);
  EXPECT_EQ(header.find("c"), nullptr);
}

TEST(Safetensors, AcceptsEmptyFilesScalarsAndEscapedNames) {
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":{}})")).metadata.empty());
  EXPECT_TRUE(
      parse(file_of(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)).tensors[0].shape.empty());
  EXPECT_NE(
      parse(file_of(R"({"\u00e9\n":{"data_offsets":[0,4],"shape":[8],"dtype":"F4"}})", 4)).find("\xC3\xA9\n"),
      nullptr);
}

TEST(Safetensors, ReadsFileThatIsMappedReadOnly) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(kGoodHeader) + "AaBbxyz");
  SafetensorsFile opened(folder / "f");
  const SafetensorsFile file = std::move(opened);
  EXPECT_EQ(text_of(file.bytes(*file.find("a"))), "AaBb");
  EXPECT_EQ(text_of(file.bytes(*file.find("b"))), "xyz");
  EXPECT_TRUE(file.bytes(*file.find("e")).empty());
  TensorInfo foreign = *file.find("b");
  foreign.end = 8;
  expect_error([&] { file.bytes(foreign); }, ExitCode::failure, {"\"b\"", "not of this file"});
}

// ---- Reader: what is bad ----

TEST(Safetensors, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  const auto expect = [](const fs::path& path, std::vector<std::string> words) {
    words.push_back(path.native());
    expect_error([&] { SafetensorsFile{path}; }, ExitCode::bad_input, words);
  };
  expect(folder / "missing", {"cannot read", "No such file"});
  expect(folder / "", {"is a folder"});
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect(folder / "pipe", {"not a regular file"});
  expect("/dev/null", {"not a regular file"});
  write_file(folder / "empty", "");
  expect(folder / "empty", {"0 bytes", "too few"});
}

TEST(Safetensors, RefusesBadLengths) {
  expect_bad_input("", {"0 bytes", "too few", "fetch"});
  expect_bad_input("1234567", {"7 bytes", "too few"});
  expect_bad_input(std::string(8, '\xFF') + "{}", {"18446744073709551615", "100000000"});
  expect_bad_input(std::string("\x01\xE1\xF5\x05\0\0\0\0", 8), {"100000001", "allowed"});
  expect_bad_input(std::string("\x00\xE1\xF5\x05\0\0\0\0{}", 10),
                   {"truncated", "100000008", "only 10 bytes"});
  expect_bad_input(file_of("{}").substr(0, 9), {"truncated"});
}

TEST(Safetensors, RefusesHeaderThatIsNoJsonObject) {
  expect_bad_input(file_of(""), {"start with '{'"});
  expect_bad_input(file_of(" {}"), {"start with '{'"});
  expect_bad_input(file_of("[]"), {"start with '{'"});
  expect_bad_input(file_of("\xEF\xBB\xBF{}"), {"start with '{'"});
  expect_bad_input(file_of("{]}"), {"not valid JSON", "byte 2"});
  expect_bad_input(file_of("{/**/}"), {"not valid JSON"});
  expect_bad_input(file_of("{\"a\":}"), {"not valid JSON"});
  expect_bad_input(file_of("{\"a\nb\":1}"), {"not valid JSON"});
  expect_bad_input(file_of(R"({"\ud800":1})"), {"not valid JSON"});
  expect_bad_input(file_of(R"({"__metadata__":{})"), {"not valid JSON"});
}

TEST(Safetensors, RefusesInvalidUtf8) {
  const std::vector<std::string> bad = {
      "\x80",         "\xC3",      "\xC0\xAF",         "\xE0\x80\xAF",     "\xED\xA0\x80",
      "\xF5\x80\x80", "\xE2\x82(", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xFF"};
  for (const std::string& sequence : bad)
    expect_bad_input(file_of("{\"a" + sequence + "\":1}"), {"UTF-8", "byte 3"});
  for (const std::string good :
       {"\xC3\xA9", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xF0\x9F\x99\x82", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(parse(file_of("{\"__metadata__\":{\"k\":\"" + good + "\"}}")).metadata.at("k"), good);
}

TEST(Safetensors, RefusesTrailingGarbageInHeader) {
  EXPECT_NO_THROW(parse(file_of("{}   ")));
  expect_bad_input(file_of("{}x"), {"does not end with"});
  expect_bad_input(file_of("{}\n"), {"does not end with"});
  expect_bad_input(file_of("{} {}"), {"goes on after the end"});
  expect_bad_input(file_of("{}}"), {"goes on after the end"});
  // The JSON library would stop at the zero byte and call this good.
  expect_bad_input(file_of(std::string_view("{}\0{}", 5)), {"zero byte"});
  expect_bad_input(file_of(std::string_view("{}\0", 3)), {"zero byte"});
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expect_bad_input(file_of(fmt::format(R"({{"a":{0},"b":{0},"a":{0}}})", entry)), {"tensor \"a\"", "twice"});
  expect_bad_input(file_of(fmt::format(R"({{"a":{0},"\u0061":{0}}})", entry)), {"tensor \"a\"", "twice"});
  expect_bad_input(file_of(R"({"__metadata__":{},"__metadata__":{}})"), {"__metadata__ occurs twice"});
  expect_bad_input(file_of(R"({"__metadata__":{"k":"1","k":"1"}})"), {"__metadata__ holds \"k\" twice"});
  expect_entry_refused(R"({"dtype":"U8","dtype":"U8"})", {"dtype twice"});
  expect_entry_refused(R"({"shape":[4],"shape":[4]})", {"shape twice"});
  expect_entry_refused(R"({"data_offsets":[0,4],"data_offsets":[0,4]})", {"data_offsets twice"});
}

TEST(Safetensors, RefusesBadMetadata) {
  for (const std::string_view value : {"null", "[]", "\"x\"", "1", "true"})
    expect_bad_input(file_of(fmt::format("{{\"__metadata__\":{}}}", value)),
                     {"__metadata__ is", "maps strings"});
  for (const std::string_view value : {"null", "[]", "{}", "1", "-1", "1.5", "1e999", "false"})
    expect_bad_input(file_of(fmt::format("{{\"__metadata__\":{{\"k\":{}}}}}", value)),
                     {"\"k\"", "must be a string"});
}

TEST(Safetensors, RefusesBadEntries) {
  for (const std::string_view entry : {"null", "[]", "\"x\"", "1", "true", "1e999"})
    expect_entry_refused(entry, {"the entry of tensor", "must be an object"});
  expect_entry_refused("{}", {"no field dtype"});
  expect_entry_refused(R"({"dtype":"U8","data_offsets":[0,4]})", {"no field shape"});
  expect_entry_refused(R"({"dtype":"U8","shape":[4]})", {"no field data_offsets"});
  expect_entry_refused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1})", {"unknown field \"x\""});
  expect_entry_refused(R"({"dtype":8})", {"dtype is 8", "must be a string"});
  expect_entry_refused(R"({"dtype":["U8"]})", {"dtype is a list", "must be a string"});
  expect_entry_refused(R"({"dtype":"F3"})", {"unknown dtype \"F3\"", "convert"});
  expect_entry_refused(R"({"dtype":"f32"})", {"unknown dtype \"f32\""});
  expect_entry_refused(R"({"shape":4})", {"shape is 4", "must be a list"});
  expect_entry_refused(R"({"data_offsets":{"a":1}})", {"data_offsets is an object", "must be a list"});
}

TEST(Safetensors, RefusesNumbersThatAreNotSizes) {
  for (const std::string_view number :
       {"-1", "-0", "1.0", "4e0", "9223372036854775808", "18446744073709551616", "1e999",
        "-9223372036854775809", "\"4\"", "null", "true", "[4]", "{}"}) {
    expect_entry_refused(fmt::format(R"({{"shape":[{}]}})", number), {"element of shape", "whole number"});
    expect_entry_refused(fmt::format(R"({{"data_offsets":[0,{}]}})", number),
                         {"element of data_offsets", "whole number"});
  }
  expect_entry_refused(R"({"shape":[-5]})", {"is -5"});
  expect_entry_refused(R"({"shape":[18446744073709551616]})", {"is 18446744073709551616"});
  expect_bad_input(file_of(R"({"t":{"shape":[04]}})"), {"not valid JSON"});
}

TEST(Safetensors, RefusesDeepNestingAtOnce) {
  const std::string deep(1'000'000, '[');
  expect_bad_input(file_of("{\"t\":" + deep + "}"), {"\"t\"", "is a list"});
  expect_entry_refused("{\"shape\":" + deep + "}", {"element of shape is a list"});
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"t\":{";
  expect_bad_input(file_of(objects + "}"), {"\"t\"", "unknown field"});
}

TEST(Safetensors, RefusesSizesThatDoNotFit) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", dtype, shape, offsets);
  };
  expect_entry_refused(entry("U8", "4", "4,0"), {"end before they begin"});
  expect_entry_refused(entry("U8", "4", "0"), {"two numbers, not 1"});
  expect_entry_refused(entry("U8", "4", "0,2,4"), {"data_offsets has more than 2"});
  expect_entry_refused(entry("F32", "1,2", "0,4"), {"[1, 2] of F32 takes 8 bytes", "[0, 4] hold 4"});
  expect_entry_refused(entry("F4", "7", "0,4"), {"whole bytes"});
  expect_entry_refused(entry("F6_E2M3", "5", "0,4"), {"whole bytes"});
  // 2^32 * 2^32 wraps to 0; 2^62 * 32 bits wraps to 0; a zero extent does not excuse the others.
  expect_entry_refused(entry("U8", "4294967296,4294967296", "0,0"), {"overflow"}, 0);
  expect_entry_refused(entry("F32", "4611686018427387904", "0,0"), {"overflow"}, 0);
  expect_entry_refused(entry("U8", "0,4294967296,4294967296", "0,0"), {"overflow"}, 0);
  // Nothing overflows here, but who walks over these rows does not come back.
  expect_entry_refused(entry("F32", "1099511627776,0", "0,0"), {"rows of nothing"}, 0);
  expect_entry_refused(entry("F32", "0,1099511627776", "0,0"), {"rows of nothing"}, 0);
  EXPECT_EQ(parse(file_of("{\"t\":" + entry("F32", "131072,0", "0,0") + "}", 0)).tensors[0].shape[0], 131072);
  std::string ones = "4";
  for (int i = 1; i < 64; ++i) ones += ",1";
  EXPECT_EQ(parse(file_of("{\"t\":" + entry("U8", ones, "0,4") + "}", 4)).tensors[0].shape.size(), 64U);
  expect_entry_refused(entry("U8", ones + ",1", "0,4"), {"more than 64"});
}

TEST(Safetensors, RefusesHolesOverlapsAndTrailingBytes) {
  const auto file = [](int a_begin, int a_end, int b_begin, int b_end, std::size_t data_bytes) {
    constexpr std::string_view kEntry = R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})";
    const auto entry = [&](char name, int begin, int end) {
      return fmt::format(fmt::runtime(kEntry), name, end - begin, begin, end);
    };
    return file_of("{" + entry('a', a_begin, a_end) + "," + entry('b', b_begin, b_end) + "}", data_bytes);
  };
  EXPECT_NO_THROW(parse(file(4, 8, 0, 4, 8)));
  expect_bad_input(file(0, 4, 5, 8, 8), {"hole", "4 to 5", "\"b\""});
  expect_bad_input(file(1, 4, 4, 8, 8), {"hole", "0 to 1", "\"a\""});
  expect_bad_input(file(0, 4, 3, 8, 8), {"\"b\" overlaps", "begins at 3", "up to 4"});
  expect_bad_input(file(0, 4, 0, 4, 4), {"overlaps"});
  expect_bad_input(file(0, 8, 4, 4, 8), {"\"b\" overlaps"});
  expect_bad_input(file(0, 4, 4, 8, 9), {"1 trailing bytes"});
  expect_bad_input(file(0, 4, 4, 8, 7), {"truncated", "8 bytes", "only 7"});
  expect_bad_input(file_of("{}", 1), {"1 trailing bytes"});
}

TEST(Safetensors, EscapesNamesInMessages) {
  expect_bad_input(file_of(R"({"\u001b[31m\n\u0000":1})"), {R"([31m\n)"});
  expect_bad_input(file_of("{\"" + std::string(5000, 'x') + "\":1}"), {"xxx\"..."});
  expect_error([] { parse_safetensors_header({}, "a\nb"); }, ExitCode::bad_input, {R"("a\nb")"});
}

TEST(Safetensors, SurvivesEveryTruncationAndEveryByteInTheHeader) {
  const std::string good = file_of(kGoodHeader, 7);
  ASSERT_NO_THROW(parse(good));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse(std::string(good, 0, size)), Error) << "cut to " << size;
  int accepted = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string mutant = good;
    for (int value = 0; value < 256; ++value) {
      mutant[at] = static_cast<char>(value);
      try {
        const SafetensorsHeader header = parse(mutant);
        ASSERT_LE(header.tensors.back().end, 7U);
        ++accepted;
      } catch (const Error& error) {
        ASSERT_EQ(error.exit_code(), ExitCode::bad_input);
      }
    }
  }
  EXPECT_GE(accepted, 7 * 256);  // No byte of the data can matter.
}

// ---- Writer ----

constexpr std::array kAllDTypes = {
    DType::boolean, DType::u8,  DType::i8,   DType::u16,     DType::i16,     DType::u32,     DType::i32,
    DType::u64,     DType::i64, DType::f4,   DType::f6_e2m3, DType::f6_e3m2, DType::f8_e4m3, DType::f8_e5m2,
    DType::f8_e8m0, DType::f16, DType::bf16, DType::f32,     DType::f64,     DType::c64};

TEST(SafetensorsWriter, RoundTripsEveryDType) {
  const TemporaryFolder folder;
  std::vector<TensorDeclaration> tensors;
  for (const DType dtype : kAllDTypes) {
    const std::string name(name_of(dtype));
    tensors.push_back({"some." + name, dtype, {3, 4}});
    tensors.push_back({"empty." + name, dtype, {2, 0, 5}});
    if (bits_of(dtype) % 8 == 0) tensors.push_back({"scalar." + name, dtype, {}});
  }
  std::map<std::string, std::string> contents;
  SafetensorsWriter writer(folder / "out", tensors, {{"epoch", "3"}, {"format", "np"}});
  for (const TensorDeclaration& tensor : tensors) {
    std::size_t bits = static_cast<std::size_t>(bits_of(tensor.dtype));
    for (const std::int64_t extent : tensor.shape) bits *= static_cast<std::size_t>(extent);
    contents[tensor.name] = std::string(bits / 8, static_cast<char>(contents.size() + 1));
    writer.write(tensor.name, bytes_of(contents[tensor.name]));
  }
  writer.commit();
  EXPECT_EQ(folder.files(), std::vector<std::string>{"out"});

  const SafetensorsFile file(folder / "out");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"epoch", "3"}, {"format", "pt"}}));
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const TensorDeclaration& tensor : tensors) {
    const TensorInfo* const info = file.find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->dtype, tensor.dtype);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_EQ(text_of(file.bytes(*info)), contents[tensor.name]) << tensor.name;
    const auto width = static_cast<std::uintptr_t>(std::max(1, bits_of(tensor.dtype) / 8));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.bytes(*info).data()) % width, 0U) << tensor.name;
  }
}

TEST(SafetensorsWriter, WritesKnownBytes) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "out", {{"b\"", DType::u16, {1}}, {"a", DType::u8, {3}}});
  writer.write("b\"", bytes_of("BB"));
  writer.write("a", bytes_of("aaa"));
  writer.commit();
  // Names in order, the wider element first in the data, spaces up to a multiple of 8.
  EXPECT_EQ(read_file(folder / "out"), file_of(R"({"__metadata__":{"format":"pt"},)"
                                               R"("a":{"dtype":"U8","shape":[3],"data_offsets":[2,5]},)"
                                               R"("b\"":{"dtype":"U16","shape":[1],"data_offsets":[0,2]}})"
                                               "     ") +
                                           "BBaaa");
}

TEST(SafetensorsWriter, HashesTheFileInDataOrder) {
  const TemporaryFolder folder;
  Sha256 hash;
  const std::vector<TensorDeclaration> tensors = {
      {"a", DType::u8, {3}}, {"z", DType::f32, {1}}, {"empty", DType::f32, {0}}, {"zz", DType::f32, {0}}};
  SafetensorsWriter writer(folder / "out", tensors, {}, &hash);
  EXPECT_EQ(writer.data_order(), (std::vector<std::string>{"empty", "z", "zz", "a"}));
  expect_error([&] { writer.write("a", bytes_of("aaa")); }, ExitCode::failure, {"hash"});
  for (const std::string& name : writer.data_order())
    writer.write(name, bytes_of(std::string_view("aaazzzz").substr(name == "z" ? 3 : 0, name == "z"   ? 4
                                                                                        : name == "a" ? 3
                                                                                                      : 0)));
  writer.commit();
  EXPECT_EQ(hash.hex(), sha256_hex(bytes_of(read_file(folder / "out"))));
}

TEST(SafetensorsWriter, WritesWhatTheLayoutSays) {
  const TemporaryFolder folder;
  const std::vector<TensorDeclaration> tensors = {{"a", DType::u8, {3}}, {"z", DType::f32, {1}}};
  SafetensorsWriter writer(folder / "out", tensors, {{"k", "v"}});
  writer.write("a", bytes_of("aaa"));
  writer.write("z", bytes_of("zzzz"));
  writer.commit();
  const SafetensorsLayout layout = safetensors_layout(folder / "out", tensors, {{"k", "v"}});
  EXPECT_EQ(read_file(folder / "out"), layout.header + "zzzzaaa");
  ASSERT_EQ(layout.tensors.size(), 2U);
  EXPECT_EQ(layout.tensors[0].name, "z");
  EXPECT_EQ(layout.tensors[0].bytes, 4U);
}

TEST(SafetensorsFile, BytesThatWereDroppedAreReadAgain) {
  const TemporaryFolder folder;
  std::string values(3'000'000, 'v');
  values[1'234'567] = 'w';
  SafetensorsWriter writer(folder / "out", {{"a", DType::u8, {3'000'000}}});
  writer.write("a", bytes_of(values));
  writer.commit();
  const SafetensorsFile file(folder / "out");
  const std::span<const std::byte> bytes = file.bytes(*file.find("a"));
  for (const std::size_t at : {0U, 1U, 1'000'000U}) {
    file.drop(bytes.subspan(at, 2'000'000));
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(values))) << at;
  }
  file.drop({});
}

TEST(SafetensorsWriter, WritesFileWithoutTensors) {
  const TemporaryFolder folder;
  SafetensorsWriter(folder / "out", {}).commit();
  const SafetensorsFile file(folder / "out");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(SafetensorsWriter, RefusesBadDeclarations) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::vector<TensorDeclaration>& tensors, const std::string& word,
                          const std::map<std::string, std::string>& metadata = {}) {
    expect_error([&] { SafetensorsWriter(folder / "out", tensors, metadata); }, ExitCode::bad_input,
                 {word, "cannot write", "out"});
  };
  expect({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}, "two tensors \"a\"");
  expect({{"", DType::u8, {1}}}, "no name");
  expect({{"__metadata__", DType::u8, {1}}}, "reserves");
  expect({{"a\xFF", DType::u8, {1}}}, "UTF-8");
  expect({}, "UTF-8", {{"k", "\xFF"}});
  expect({{"a", DType::u8, {-1}}}, "negative");
  expect({{"a", DType::f4, {3}}}, "whole bytes");
  expect({{"a", DType::f64, {std::int64_t{1} << 62}}}, "overflow");
  std::vector<TensorDeclaration> huge;
  for (const char name : {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})
    huge.push_back({std::string(1, name), DType::u64, {std::int64_t{1} << 57}});
  expect(huge, "more bytes than a file can hold");
  expect({{"a", DType::u8, std::vector<std::int64_t>(65, 1)}}, "65 extents");
  EXPECT_TRUE(folder.files().empty());
}

TEST(SafetensorsWriter, RefusesMisuse) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "out", {{"a", DType::u8, {2}}, {"b", DType::u8, {0}}});
  const auto expect = [](const std::function<void()>& action, const std::string& word) {
    expect_error(action, ExitCode::failure, {word, "out"});
  };
  expect([&] { writer.write("c", {}); }, "not declared");
  expect([&] { writer.write("a", bytes_of("123")); }, "declared with 2 bytes, not 3");
  writer.write("a", bytes_of("12"));
  expect([&] { writer.write("a", bytes_of("12")); }, "written already");
  expect([&] { writer.commit(); }, "\"b\" was not written");
  writer.write("b", {});
  writer.commit();
  expect([&] { writer.write("a", bytes_of("12")); }, "finished");
  expect([&] { writer.commit(); }, "finished");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"out"});
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenAbandoned) {
  const TemporaryFolder folder;
  write_file(folder / "old", "precious");
  for (const std::string_view name : {"new", "old"}) {
    SafetensorsWriter writer(folder / name, {{"a", DType::u8, {1}}, {"b", DType::u8, {1}}});
    writer.write("a", bytes_of("1"));
    EXPECT_EQ(folder.files().size(), 2U);
  }
  EXPECT_EQ(folder.files(), std::vector<std::string>{"old"});
  EXPECT_EQ(read_file(folder / "old"), "precious");
}

TEST(SafetensorsWriter, StepsOverStaleTemporaryFiles) {
  const TemporaryFolder folder;
  unsigned used = 0;
  {
    const SafetensorsWriter writer(folder / "out", {});
    const std::string name = folder.files().at(0);
    used = static_cast<unsigned>(std::stoul(name.substr(name.rfind('.') + 1)));
  }
  const std::string stale = fmt::format("out.tmp.{}.{}", ::getpid(), used + 1);
  write_file(folder / stale, "stale");
  SafetensorsWriter(folder / "out", {}).commit();
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"out", stale}));
  EXPECT_EQ(read_file(folder / stale), "stale");
}

TEST(SafetensorsWriter, RefusesTargetsThatCannotBeCreated) {
  const TemporaryFolder folder;
  write_file(folder / "file", "x");
  fs::create_directory(folder / "dir");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto expect = [](const fs::path& path, const std::string& word) {
    expect_error([&] { SafetensorsWriter(path, {}); }, ExitCode::bad_input,
                 {"cannot write", word, "choose another"});
  };
  expect(folder / "missing/out", "No such file");
  expect(folder / "file/out", "Not a directory");
  expect(folder / "dir", "is a folder");
  expect(folder / "dir/", "names no file");
  expect(folder / "pipe", "not a regular file");
  expect(folder / std::string(300, 'n'), "too long");
  expect("/dev/null", "not a regular file");
  expect("", "names no file");
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"dir", "file", "pipe"}));
}

TEST(SafetensorsWriter, ReplacesTheFileItReadsFrom) {
  const TemporaryFolder folder;
  const std::string before(100'000, 'x');
  const std::vector<TensorDeclaration> tensors = {{"a", DType::u8, {100'000}}};
  SafetensorsWriter first(folder / "f", tensors);
  first.write("a", bytes_of(before));
  first.commit();

  const SafetensorsFile input(folder / "f");
  std::string after = text_of(input.bytes(*input.find("a")));
  after[7] = 'y';
  SafetensorsWriter second(folder / "f", tensors);
  second.write("a", bytes_of(after));
  second.commit();
  EXPECT_EQ(text_of(input.bytes(*input.find("a"))), before);
  const SafetensorsFile output(folder / "f");
  EXPECT_EQ(text_of(output.bytes(*output.find("a"))), after);
}

TEST(SafetensorsWriter, FullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  write_file(folder / "out", "precious");
  const std::string big(100'000, 'x');
  std::string message;
  ExitCode exit_code = ExitCode::ok;
  {
    const FileSizeLimit limit(10'000);
    try {
      SafetensorsWriter writer(folder / "out", {{"a", DType::u8, {100'000}}});
      writer.write("a", bytes_of(big));
      writer.commit();
    } catch (const Error& error) {
      message = error.what();
      exit_code = error.exit_code();
    }
  }
  EXPECT_EQ(exit_code, ExitCode::failure);
  EXPECT_NE(message.find("failed to write"), message.npos) << message;
  EXPECT_EQ(folder.files(), std::vector<std::string>{"out"});
  EXPECT_EQ(read_file(folder / "out"), "precious");
}

}  // namespace
}  // namespace tetrad
