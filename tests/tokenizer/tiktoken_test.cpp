// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/tiktoken.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using Ids = std::vector<std::int32_t>;

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63u];
  }
  return text;
}

/// The bytes and a few more tokens, whose ranks are not in the order of their bytes.
std::string ranks() {
  std::string text;
  int rank = 0;
  for (int byte = 255; byte >= 0; --byte)
    text += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(rank++) + "\n";
  for (const char* token : {"ab", "cd", "bc", "abc", "abcd", " ab", "zzz"})
    text += base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

std::unique_ptr<BpeTokenizer> parse(const std::string& text, std::string_view encoding = "cl100k") {
  return parse_tiktoken(text, encoding, "some.tiktoken");
}

std::int32_t id_of(char byte) { return 255 - static_cast<std::uint8_t>(byte); }

TEST(Tiktoken, MergesByRankOfTheResult) {
  const auto tokenizer = parse(ranks());
  EXPECT_EQ(tokenizer->encode("ab"), Ids{256});
  EXPECT_EQ(tokenizer->encode("abcd"), Ids{260});                 // a token needs no merging
  EXPECT_EQ(tokenizer->encode("xabcd"), (Ids{id_of('x'), 260}));  // ab and cd first, then both
  EXPECT_EQ(tokenizer->encode("xabc"), (Ids{id_of('x'), 259}));
  EXPECT_EQ(tokenizer->encode("zzz"), Ids{262});  // cannot be merged, but is a token
  EXPECT_EQ(tokenizer->encode("zzzz"), (Ids(4, id_of('z'))));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("any \xFF bytes ab")), "any \xFF bytes ab");
  EXPECT_EQ(tokenizer->encode("ab<|endoftext|>"), (Ids{256, 263}));
  EXPECT_EQ(tokenizer->end_of_document(), 263);
}

TEST(Tiktoken, TheEncodingDecidesTheSplitAndTheSpecialTokens) {
  EXPECT_EQ(parse(ranks(), "o200k")->definition().splits[0]->name, "o200k");
  EXPECT_EQ(parse(ranks(), "r50k")->definition().splits[0]->name, "gpt2");
  const auto llama = parse(ranks(), "llama3");
  EXPECT_EQ(llama->vocab(), 263 + 256);
  EXPECT_EQ(llama->encode("<|begin_of_text|><|end_of_text|>"), (Ids{263, 264}));
  EXPECT_EQ(llama->encode("<|start_header_id|><|end_header_id|><|reserved_special_token_4|><|eot_id|>"),
            (Ids{269, 270, 271, 272}));
  EXPECT_EQ(llama->encode("<|reserved_special_token_250|>"), Ids{263 + 255});
  EXPECT_EQ(llama->definition().prefix, Ids{263});
  EXPECT_EQ(llama->end_of_document(), 264);
}

TEST(Tiktoken, Llama31HasNamesForMoreTokens) {
  const auto llama = parse(ranks(), "llama3.1");
  EXPECT_EQ(llama->vocab(), 263 + 256);
  EXPECT_EQ(
      llama->encode("<|begin_of_text|><|end_of_text|><|reserved_special_token_1|><|finetune_right_pad_id|>"),
      (Ids{263, 264, 266, 267}));
  EXPECT_EQ(llama->encode("<|reserved_special_token_2|><|start_header_id|><|end_header_id|>"),
            (Ids{268, 269, 270}));
  EXPECT_EQ(llama->encode("<|eom_id|><|eot_id|><|python_tag|><|reserved_special_token_3|>"),
            (Ids{271, 272, 273, 274}));
  EXPECT_EQ(llama->encode("<|reserved_special_token_247|>"), Ids{263 + 255});
  EXPECT_EQ(tiktoken_spec("llama3.1:tokenizer.model")->encoding, "llama3.1");
  EXPECT_EQ(llama->definition().prefix, Ids{263});
  EXPECT_EQ(llama->end_of_document(), 264);
}

TEST(Tiktoken, BecomesATokenizerJson) {
  for (const char* encoding : {"cl100k", "o200k", "r50k", "llama3", "llama3.1"}) {
    const auto original = parse(ranks(), encoding);
    const auto loaded = parse_tokenizer_json(to_tokenizer_json(original->definition()), "some.json");
    EXPECT_EQ(loaded->hash(), original->hash()) << encoding;
    EXPECT_EQ(loaded->definition().prefix, original->definition().prefix);
  }
}

TEST(Tiktoken, IsNamedByItsEncodingOrItsFile) {
  EXPECT_EQ(tiktoken_spec("llama3:dir/tokenizer.model")->path, "dir/tokenizer.model");
  EXPECT_EQ(tiktoken_spec("dir/o200k_base.tiktoken")->encoding, "o200k");
  EXPECT_FALSE(tiktoken_spec("tokenizer.json"));
  EXPECT_FALSE(tiktoken_spec("c:tokenizer.json"));
  expect_bad_input([] { tiktoken_spec("qwen.tiktoken"); }, {"qwen.tiktoken", "cl100k"});
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "x.tiktoken", ranks());
  EXPECT_EQ(load_tokenizer("cl100k:" + folder.file("x.tiktoken"))->vocab(), 264);
  EXPECT_EQ(tokenizer_in_folder("cl100k:x.tiktoken", folder.path()), "cl100k:" + folder.file("x.tiktoken"));
  expect_bad_input([&] { load_tokenizer("cl100k:" + folder.file("absent")); }, {"absent"});
}

TEST(Tiktoken, ReadsBlankLinesHolesAndCarriageReturns) {
  std::string text = ranks() + "\n" + base64("holes") + " 300\r\n\n";
  EXPECT_EQ(parse(text)->encode("holes"), Ids{300});
  text.pop_back();
  EXPECT_EQ(parse(text)->vocab(), 302);
}

TEST(Tiktoken, RefusesDamage) {
  const auto refused = [](const std::string& text, const std::string& word) {
    expect_bad_input([&] { parse(text); }, {"some.tiktoken", word});
  };
  refused("", "byte 0");
  refused(ranks().substr(ranks().find('\n') + 1), "byte 255");
  refused(ranks() + "YWI= 400\n", "twice");  // the token
  refused(ranks() + "cXE= 5\n", "twice");    // the rank
  refused(ranks() + "cXE 400\n", "base64");  // too short
  refused(ranks() + "c=E= 400\n", "base64");
  refused(ranks() + "==== 400\n", "base64");
  refused(ranks() + "cX*= 400\n", "base64");
  refused(ranks() + "cXE=\n", "line 264");
  refused(ranks() + "cXE= -1\n", "whole number");
  refused(ranks() + "cXE= 1.5\n", "whole number");
  refused(ranks() + "cXE= 99999999\n", "whole number");
  refused(ranks() + "cXE= 99999999999999999999\n", "whole number");
  refused(ranks() + "cXE= \n", "whole number");
  refused(ranks() + std::string(4000, 'A') + " 400\n", "512");
  refused("\x0A\x0E\x0A\x05<unk>", "tiktoken");  // a SentencePiece model
  expect_bad_input([] { parse(ranks(), "gpt5"); }, {"gpt5", "cl100k"});
}

}  // namespace
}  // namespace tetrad
