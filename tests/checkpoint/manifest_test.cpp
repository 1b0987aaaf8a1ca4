// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <span>

#include "tetrad/core/error.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

constexpr std::string_view kHash = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

constexpr std::string_view kOtherHash = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

Manifest example() {
  return {12,
          "v1 \"quoted\"",
          "01234567-89ab-4def-8123-456789abcdef",
          4,
          {{"a.safetensors", 7, {std::string(kHash), std::string(kOtherHash)}}, {"state.json", 0, {}}}};
}

/// As version 2 wrote it.
Manifest earlier_example() {
  Manifest manifest = example();
  manifest.piece_bytes = 0;
  for (ManifestFile& file : manifest.files) file.sha256 = {std::string(kHash)};
  return manifest;
}

std::string entry(std::string_view name, std::string_view bytes = "1") {
  return fmt::format(R"({{"name":"{}","bytes":{},"sha256":"{}"}})", name, bytes, kHash);
}

/// Any content with a right seal, as someone would make it who means harm.
std::string sealed(const std::string& content) {
  return fmt::format("{},\"sha256\":\"{}\"}}\n", content, sha256_hex(std::as_bytes(std::span(content))));
}

std::string sealed_with(std::string_view step, std::string_view files) {
  return sealed(fmt::format(
      "{{\"format\":\"tetrad-checkpoint\",\"version\":1,\"step\":{},\"build\":\"b\",\"files\":[\n{}\n]", step,
      files));
}

void expect_bad_input(std::string_view text, std::string_view word) {
  try {
    parse_manifest(text);
    ADD_FAILURE() << "accepted: " << text.substr(0, 300);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::bad_input);
    EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 500U);
  }
}

TEST(Manifest, RoundTrips) {
  EXPECT_EQ(parse_manifest(manifest_text(example())), example());
  EXPECT_EQ(parse_manifest(sealed_with("3", entry("f"))),
            (Manifest{3, "b", {}, 0, {{"f", 1, {std::string(kHash)}}}}));
  Manifest without_run = example();
  without_run.run.clear();
  EXPECT_EQ(parse_manifest(manifest_text(without_run)), without_run);
}

TEST(Manifest, OfEarlierVersionsIsRead) {
  Manifest earlier = earlier_example();
  EXPECT_NE(manifest_text(earlier).find("\"version\":2"), std::string::npos);
  EXPECT_EQ(parse_manifest(manifest_text(earlier)), earlier);
  earlier.run.clear();
  EXPECT_NE(manifest_text(earlier).find("\"version\":1"), std::string::npos);
  EXPECT_EQ(parse_manifest(manifest_text(earlier)), earlier);
  for (Manifest strange : {example(), earlier_example()}) {
    strange.run = "../elsewhere";
    expect_bad_input(manifest_text(strange), "run");
  }
}

TEST(Manifest, HasOneHashForEachPiece) {
  const auto refuse = [](std::uint64_t bytes, std::vector<std::string> hashes, std::string_view word) {
    Manifest manifest = example();
    manifest.files[0].bytes = bytes;
    manifest.files[0].sha256 = std::move(hashes);
    expect_bad_input(manifest_text(manifest), word);
  };
  const std::string hash(kHash);
  refuse(8, {hash}, "each piece");
  refuse(9, {hash, hash}, "each piece");
  refuse(4, {hash, hash}, "each piece");
  refuse(4, {}, "each piece");
  refuse(0, {hash}, "each piece");
  refuse(std::uint64_t{1} << 62, {hash}, "each piece");
  refuse(8, {hash, hash.substr(1)}, "64 hexadecimal");
  std::string text = manifest_text(example());
  for (const std::string_view size : {"0", "-4", "4.0", "\"4\"", "null", "18446744073709551616"}) {
    std::string content = text.substr(0, text.rfind(",\"sha256\""));
    content.replace(content.find("_bytes\":4") + 8, 1, size);
    expect_bad_input(sealed(content), "piece_bytes");
  }
}

TEST(Manifest, HasRoomForTheLargestModels) {
  constexpr std::uint64_t kBytes = 100'000'000'000;
  constexpr std::uint64_t kPiece = std::uint64_t{64} << 20;
  Manifest large = example();
  large.piece_bytes = kPiece;
  large.files.clear();
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    large.files.push_back({name, kBytes, std::vector((kBytes + kPiece - 1) / kPiece, std::string(kHash))});
  EXPECT_EQ(parse_manifest(manifest_text(large)), large);
}

TEST(Manifest, FindsEveryChangedByteAndEveryCut) {
  const std::string good = manifest_text(example());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    for (int value = 1; value < 256; ++value) {
      bad[at] = static_cast<char>(good[at] ^ value);
      ASSERT_THROW(parse_manifest(bad), Error) << at << ' ' << value;
    }
    ASSERT_THROW(parse_manifest(good.substr(0, at)), Error) << at;
    ASSERT_THROW(parse_manifest(good.substr(at + 1)), Error) << at;
  }
  expect_bad_input(good + "\n", "damaged");
  expect_bad_input(good + good, "damaged");
}

TEST(Manifest, RefusesNamesThatAreNotOfACheckpoint) {
  for (const std::string name : {"", ".", "..", ".hidden", "../x", "a/b", "/etc/passwd", "a\\\\b",
                                 "a\\u0000b", "MANIFEST.json", "a b", "\xC3\xA9"})
    expect_bad_input(sealed_with("1", entry(name)), "cannot be of a checkpoint");
  expect_bad_input(sealed_with("1", entry(std::string(1000, 'n'))), "cannot be of a checkpoint");
  expect_bad_input(sealed_with("1", entry("f") + ",\n" + entry("f")), "twice");
  expect_bad_input(sealed_with("1", entry("g") + ",\n" + entry("f")), "out of order");
}

TEST(Manifest, RefusesNumbersThatAreNotSizes) {
  for (const std::string number :
       {"-1", "1.0", "1e3", "9223372036854775808", "18446744073709551616", "\"1\"", "null", "[]"}) {
    expect_bad_input(sealed_with(number, entry("f")), "\"step\"");
    expect_bad_input(sealed_with("1", entry("f", number)), "\"bytes\"");
  }
  expect_bad_input(sealed_with("01", entry("f")), "JSON");
}

TEST(Manifest, RefusesOtherContent) {
  expect_bad_input("", "cut short");
  expect_bad_input(std::string(kManifestMaxBytes + 1, ' '), "bytes");
  expect_bad_input(sealed("{"), "JSON");
  expect_bad_input(sealed("{\"format\":\"other\""), "not of a checkpoint of Tetrad");
  expect_bad_input(sealed("{\"format\":\"tetrad-checkpoint\",\"version\":4"), "version 4");
  expect_bad_input(sealed_with("1", ""), "no files");
  expect_bad_input(sealed_with("1", "1"), "not an object");
  expect_bad_input(sealed_with("1", entry("f") + " "), "more than the fields");
  expect_bad_input(sealed_with("1,\"step\":1", entry("f")), "more than the fields");
  expect_bad_input(sealed_with("1,\"extra\":true", entry("f")), "more than the fields");
  expect_bad_input(sealed("{\"a\":" + std::string(500'000, '[')), "JSON");
  std::string upper = entry("f");
  upper.replace(upper.find(kHash), kHash.size(), std::string(64, 'A'));
  expect_bad_input(sealed_with("1", upper), "64 hexadecimal");
}

}  // namespace
}  // namespace tetrad
