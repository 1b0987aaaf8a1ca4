// SPDX-License-Identifier: Apache-2.0
#include "tetrad/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/tokenizer/bpe_trainer.h"

namespace tetrad {
namespace {

using Ids = std::vector<std::int32_t>;

using nlohmann::json;
using testing::expect_bad_input;
using testing::is_refused;

const std::string quoted_text =
    "the cat sat on the mat with the other cat; \"quoted\" \\ back \x01\xFF\n the end the end";

BpeDefinition definition() {
  const std::string_view text = quoted_text;
  return train_bpe({&text, 1}, 280);
}

const std::string& saved() {
  static const std::string text = to_tokenizer_json(definition());
  return text;
}

std::unique_ptr<BpeTokenizer> parse_text(std::string_view text) {
  return parse_tokenizer_json(text, "some.json");
}

TEST(TokenizerJson, SpellsBytesAsGpt2Does) {
  EXPECT_EQ(spell_bytes("A z\n"), "AĠzĊ");
  EXPECT_EQ(spell_bytes(std::string_view("\0\x7F\xA0\xAD\xFF", 5)), "\u0100\u0121\u0142\u0143\u00FF");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(unspell_bytes(spell_bytes(all)), all);
  EXPECT_EQ(unspell_bytes("a b"), "");
  EXPECT_EQ(unspell_bytes("漢"), "");
}

TEST(TokenizerJson, ComesBackAsItWas) {
  const BpeTokenizer original(definition());
  const auto loaded = parse_text(saved());
  EXPECT_EQ(loaded->hash(), original.hash());
  EXPECT_EQ(loaded->definition().tokens, original.definition().tokens);
  EXPECT_EQ(loaded->definition().merges, original.definition().merges);
  EXPECT_EQ(loaded->definition().added, original.definition().added);
  EXPECT_EQ(loaded->encode(quoted_text + "<|endoftext|>"), original.encode(quoted_text + "<|endoftext|>"));
  EXPECT_EQ(to_tokenizer_json(loaded->definition()), saved());
}

TEST(TokenizerJson, HasWhatOtherReadersLookFor) {
  const json root = json::parse(saved());
  EXPECT_EQ(root["model"]["type"], "BPE");
  EXPECT_EQ(root["pre_tokenizer"]["type"], "ByteLevel");
  EXPECT_EQ(root["decoder"]["type"], "ByteLevel");
  EXPECT_TRUE(root["model"]["merges"][0].is_array());
  EXPECT_EQ(root["added_tokens"][0]["content"], "<|endoftext|>");
  EXPECT_EQ(root["model"]["vocab"]["<|endoftext|>"], root["added_tokens"][0]["id"]);
}

TEST(TokenizerJson, ReadsBothSpellingsOfMergesAndBothOfTheSplit) {
  json root = json::parse(saved());
  for (json& merge : root["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", std::string(gpt2_split().pattern)}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_EQ(parse_text(root.dump())->hash(), BpeTokenizer(definition()).hash());
}

TEST(TokenizerJson, IgnoreMergesTakesWholeWords) {
  json root = json::parse(saved());
  root["model"]["ignore_merges"] = true;
  root["model"]["vocab"]["zzz"] = 280;
  const auto tokenizer = parse_text(root.dump());
  EXPECT_EQ(tokenizer->encode("zzz"), (std::vector<std::int32_t>{280}));
  root["model"]["ignore_merges"] = false;
  EXPECT_EQ(parse_text(root.dump())->encode("zzz"), (std::vector<std::int32_t>{'z', 'z', 'z'}));
}

TEST(TokenizerJson, ComesBackWithAllThatOthersWrite) {
  BpeDefinition all = definition();
  const auto first = static_cast<std::int32_t>(all.tokens.size());
  all.tokens.resize(all.tokens.size() + 12);  // with holes
  all.added.push_back({.id = first + 3, .content = "<|begin|>", .normalized = false});
  all.added.push_back({.id = first + 7,
                       .content = "two words \u00e9",
                       .special = false,
                       .single_word = true,
                       .normalized = true});
  all.added.push_back(
      {.id = first + 11, .content = "\u6f22", .special = false, .lstrip = true, .rstrip = true});
  all.prefix = {first + 3, 'a'};
  all.suffix = {first + 7, first + 3};
  all.ignore_merges = true;
  std::vector<std::vector<const Split*>> splits = {{&whole_split()},
                                                   {&digit_split(), &gpt2_split()},
                                                   {&number_split()},
                                                   {split_of_name("o200k"), &digit_split(), &gpt2_split()}};
  for (const Split& split : regex_splits()) splits.push_back({&split});
  for (const auto& list : splits) {
    all.splits = list;
    all.add_prefix_space = list[0] == &gpt2_split();
    const auto loaded = parse_text(to_tokenizer_json(all));
    EXPECT_EQ(loaded->hash(), BpeTokenizer(all).hash()) << loaded->description();
    EXPECT_EQ(loaded->definition().splits, all.splits);
    EXPECT_EQ(loaded->definition().added, all.added);
    EXPECT_EQ(loaded->definition().prefix, all.prefix);
    EXPECT_EQ(loaded->definition().suffix, all.suffix);
    EXPECT_EQ(to_tokenizer_json(loaded->definition()), to_tokenizer_json(all));
  }
}

TEST(TokenizerJson, ReadsWhatPostProcessorsPutAroundATextAndEncodesWithoutIt) {
  json root = json::parse(saved());
  const auto end = root["added_tokens"][0]["id"].get<std::int32_t>();
  root["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
         {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {end, 65}}}}}}}}}};
  const auto tokenizer = parse_text(root.dump());
  EXPECT_EQ(tokenizer->definition().prefix, (std::vector<std::int32_t>{end, 65}));
  EXPECT_TRUE(tokenizer->suffix().empty());
  EXPECT_EQ(tokenizer->encode("B"), (std::vector<std::int32_t>{66}));
  root["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 67}}, {"cls", {"<s>", 68}}};
  EXPECT_EQ(parse_text(root.dump())->definition().prefix, (std::vector<std::int32_t>{68}));
  EXPECT_EQ(parse_text(root.dump())->definition().suffix, (std::vector<std::int32_t>{67}));
}

TEST(TokenizerJson, AnAddedTokenMayBeOneThatMergesMake) {
  json root = json::parse(saved());
  const auto id = root["model"]["vocab"]["the"].get<std::int32_t>();
  json the = root["added_tokens"][0];
  the.update({{"id", id}, {"content", "the"}, {"single_word", true}, {"special", false}});
  root["added_tokens"].push_back(the);
  const auto tokenizer = parse_text(root.dump());
  EXPECT_EQ(tokenizer->encode("the"), (std::vector<std::int32_t>{id}));
  EXPECT_EQ(tokenizer->encode("theme"), (std::vector<std::int32_t>{id, 'm', 'e'}));
}

TEST(TokenizerJson, RefusesWhatItWouldEncodeDifferently) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& word) {
    json root = json::parse(saved());
    change(root);
    expect_bad_input([&] { parse_text(root.dump()); }, {"some.json", word});
  };
  refused([](json& r) { r["version"] = "2.0"; }, "2.0");
  refused([](json& r) { r["normalizer"] = {{"type", "NFKC"}}; }, "NFKC");
  refused(
      [](json& r) {
        r["normalizer"] = {{"type", "Sequence"},
                           {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
      },
      "Lowercase");
  refused([](json& r) { r["pre_tokenizer"] = nullptr; }, "pre-tokenizer");
  const auto sequence = [](const json& step, const json& byte_level) {
    return json{{"type", "Sequence"}, {"pretokenizers", {step, byte_level}}};
  };
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json spaced = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(gpt2_split().pattern)}}},
                      {"behavior", "Isolated"}};
  refused([&](json& r) { r["pre_tokenizer"] = sequence(split, spaced); }, "space");
  refused([&](json& r) { r["pre_tokenizer"] = sequence(bytes, split); }, "ByteLevel");
  refused([&](json& r) { r["pre_tokenizer"] = sequence(bytes, bytes); }, "ByteLevel");
  refused([&](json& r) { r["pre_tokenizer"] = sequence({{"type", "Punctuation"}}, bytes); }, "Punctuation");
  refused(
      [&](json& r) {
        r["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
      },
      "ByteLevel");
  refused(
      [&](json& r) {
        r["pre_tokenizer"] = sequence(split, bytes);
        r["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext";
      },
      "MergedWithNext");
  refused(
      [&](json& r) {
        r["pre_tokenizer"] = sequence(split, bytes);
        r["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
      },
      "regular expression");
  refused([](json& r) { r["post_processor"] = {{"type", "BertProcessing"}}; }, "BertProcessing");
  refused(
      [](json& r) {
        r["pre_tokenizer"] = {
            {"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
      },
      "pattern");
  refused([](json& r) { r["decoder"] = nullptr; }, "decoder");
  refused([](json& r) { r["decoder"] = {{"type", "Metaspace"}}; }, "Metaspace");
  refused([](json& r) { r["model"]["type"] = "Unigram"; }, "Unigram");
  refused([](json& r) { r["model"]["dropout"] = 0.1; }, "dropout");
  refused([](json& r) { r["model"]["end_of_word_suffix"] = "</w>"; }, "parts of words");
  refused([](json& r) { r["model"]["byte_fallback"] = true; }, "bytes");
}

TEST(TokenizerJson, RefusesDamage) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& word) {
    json root = json::parse(saved());
    change(root);
    expect_bad_input([&] { parse_text(root.dump()); }, {"some.json", word});
  };
  refused([](json& r) { r = json::array(); }, "object");
  refused([](json& r) { r.erase("model"); }, "model");
  refused([](json& r) { r["model"]["vocab"] = json::array(); }, "vocab");
  refused([](json& r) { r["model"]["vocab"]["A"] = 1.5; }, "whole number");
  refused([](json& r) { r["model"]["vocab"]["A"] = -1; }, "whole number");
  refused([](json& r) { r["model"]["vocab"]["A"] = 2147483647; }, "whole number");
  refused([](json& r) { r["model"]["vocab"]["A"] = UINT64_MAX; }, "whole number");
  refused([](json& r) { r["model"]["vocab"]["A"] = "65"; }, "whole number");
  refused([](json& r) { r["model"]["vocab"]["A"] = 66; }, "two tokens");
  refused([](json& r) { r["model"]["vocab"].erase("A"); }, "byte 65");
  refused([](json& r) { r["model"]["vocab"]["a b"] = 290; }, "spelled");
  refused([](json& r) { r["model"]["vocab"][""] = 290; }, "spelled");
  refused([](json& r) { r["model"]["merges"] = nullptr; }, "merges");
  refused([](json& r) { r["model"]["merges"].push_back({"absent", "a"}); }, "absent");
  refused([](json& r) { r["model"]["merges"].push_back({"z", "q"}); }, "not in the vocabulary");
  refused([](json& r) { r["model"]["merges"].push_back(r["model"]["merges"][0]); }, "twice");
  refused([](json& r) { r["model"]["merges"].push_back("abc"); }, "neither");
  refused([](json& r) { r["model"]["merges"].push_back(7); }, "neither");
  refused([](json& r) { r["model"]["merges"].push_back({"a", "b", "c"}); }, "neither");
  refused([](json& r) { r["added_tokens"].push_back(r["added_tokens"][0]); }, "twice");
  refused([](json& r) { r["added_tokens"][0]["content"] = ""; }, "content");
  refused([](json& r) { r["added_tokens"][0]["id"] = 1e300; }, "whole number");
  refused([](json& r) { r["added_tokens"][0]["id"] = 16000000; }, "whole number");
  refused([](json& r) { r["added_tokens"][0]["id"] = 5; }, "would give it");
  refused([](json& r) { r["added_tokens"].push_back({{"id", 300}, {"content", "<new>"}}); }, "would give it");
  const auto with_template = [](json& r, const json& single) {
    r["post_processor"] = {{"type", "TemplateProcessing"},
                           {"single", single},
                           {"special_tokens", {{"<x>", {{"id", "<x>"}, {"ids", {100000}}}}}}};
  };
  const json text = {{"Sequence", {{"id", "A"}}}};
  refused([&](json& r) { with_template(r, 3); }, "list");
  refused([&](json& r) { with_template(r, json::array()); }, "text once");
  refused([&](json& r) { with_template(r, {text, text}); }, "text once");
  refused([&](json& r) { with_template(r, {text, 7}); }, "does not define");
  refused([&](json& r) { with_template(r, {{{"SpecialToken", {{"id", "<y>"}}}}, text}); }, "does not define");
  refused([&](json& r) { with_template(r, {{{"SpecialToken", {{"id", "<x>"}}}}, text}); }, "whole number");
  refused([](json& r) { r["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", 3}}; }, "damaged");
  refused([](json& r) { r["added_tokens"] = 3; }, "list");
}

TEST(TokenizerJson, FlagsAreTrueOrFalseAndThere) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& word) {
    json root = json::parse(saved());
    change(root);
    expect_bad_input([&] { parse_text(root.dump()); }, {"some.json", word, "true or false"});
  };
  refused([](json& r) { r["model"]["ignore_merges"] = 1; }, "ignore_merges");
  refused([](json& r) { r["model"]["byte_fallback"] = "yes"; }, "byte_fallback");
  refused([](json& r) { r["pre_tokenizer"].erase("add_prefix_space"); }, "add_prefix_space");
  refused([](json& r) { r["pre_tokenizer"]["use_regex"] = 0; }, "use_regex");
  for (const char* flag : {"special", "single_word", "lstrip", "rstrip", "normalized"}) {
    refused([&](json& r) { r["added_tokens"][0].erase(flag); }, flag);
    refused([&](json& r) { r["added_tokens"][0][flag] = "true"; }, flag);
  }
}

TEST(TokenizerJson, RefusesWhatWouldTakeTooMuch) {
  json many = json::parse(saved());
  json steps = json::array();
  for (int i = 0; i < 100'000; ++i) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back(many["pre_tokenizer"]);
  many["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  expect_bad_input([&] { parse_text(many.dump()); }, {"100001 steps"});
  json large = json::parse(saved());
  large["added_tokens"][0]["content"] = std::string(2000, 'a');
  expect_bad_input([&] { parse_text(large.dump()); }, {"2000 bytes"});
}

TEST(TokenizerJson, NormalizesBetweenAddedTokensOfBothKinds) {
  json root = json::parse(saved());
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const auto next = root["model"]["vocab"].size();
  for (const bool normalized : {false, true})
    root["added_tokens"].push_back({{"id", next + (normalized ? 1 : 0)},
                                    {"content", normalized ? "[e\u0301]" : "<e\u0301>"},
                                    {"special", false},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", normalized}});
  const auto tokenizer = parse_text(root.dump());
  const auto raw = static_cast<std::int32_t>(next);
  EXPECT_EQ(tokenizer->encode("e\u0301\u00e9"), (Ids{0xC3, 0xA9, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->encode("<e\u0301>[e\u0301][\u00e9]"), (Ids{raw, raw + 1, raw + 1}));
  EXPECT_EQ(tokenizer->encode("<\u00e9>"), (Ids{'<', 0xC3, 0xA9, '>'}));
  EXPECT_EQ(tokenizer->decode(Ids{raw}), "<e\u0301>");
  EXPECT_EQ(tokenizer->decode(Ids{raw + 1}),
            "[\xE9]");  // normalized it is spelled as bytes, as in the package
  EXPECT_NE(tokenizer->hash(), parse_text(saved())->hash());
  EXPECT_EQ(parse_text(to_tokenizer_json(tokenizer->definition()))->hash(), tokenizer->hash());
}

TEST(TokenizerJson, RefusesJsonThatLibrariesLetPass) {
  expect_bad_input([] { parse_text(R"({"model": 1, "model": 2})"); }, {"twice", "model"});
  expect_bad_input([] { parse_text(std::string(100000, '[')); }, {"nested"});
  expect_bad_input([] { parse_text("{\"a\": " + std::string(100000, '[')); }, {"nested"});
  expect_bad_input([] { parse_text("\xFF"); }, {"UTF-8"});
  expect_bad_input([] { parse_text(std::string("{}\0x", 4)); }, {"zero byte"});
  expect_bad_input([] { parse_text("{} {}"); }, {"JSON"});
  expect_bad_input([] { parse_text(""); }, {"JSON"});
  expect_bad_input([] { parse_text(R"({"a": 1e999})"); }, {"JSON"});
}

TEST(TokenizerJson, CutAnywhereItIsRefused) {
  const std::string& whole = saved();
  const std::size_t end = whole.find_last_of('}');
  for (std::size_t size = 0; size <= end; size += size < 600 || size + 600 > end ? 1 : 61)
    ASSERT_TRUE(is_refused([&] { parse_text(std::string_view(whole).substr(0, size)); })) << size;
}

TEST(TokenizerJson, AnyFlippedByteIsRefusedOrStillATokenizer) {
  for (std::size_t i = 0; i < saved().size(); i += 3) {
    std::string damaged = saved();
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 7)));
    try {
      const auto tokenizer = parse_text(damaged);
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(quoted_text)), quoted_text) << i;
    } catch (const Error& error) {
      ASSERT_EQ(error.exit_code(), ExitCode::bad_input) << error.what();
    }
  }
}

TEST(LoadTokenizer, TakesBytesOrAPath) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "tokenizer.json", saved());
  EXPECT_EQ(load_tokenizer(folder.file("tokenizer.json"))->hash(), BpeTokenizer(definition()).hash());
  EXPECT_EQ(load_tokenizer("bytes")->vocab(), 256);
  expect_bad_input([&] { load_tokenizer(folder.file("absent.json")); }, {"absent.json"});
  expect_bad_input([] { load_tokenizer(""); }, {"bytes"});
  expect_bad_input([] { load_tokenizer("some.tiktoken"); }, {"cl100k", "ENCODING:FILE"});
  expect_bad_input([] { load_tokenizer("tokenizer.model"); }, {"llama3"});
}

}  // namespace
}  // namespace tetrad
