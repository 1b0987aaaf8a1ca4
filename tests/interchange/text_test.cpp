// SPDX-License-Identifier: Apache-2.0
// What a model's files say about its texts, from import to export: context, and the tokens that begin and end
// one.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "interchange/checkpoints.h"
#include "support/errors.h"
#include "support/one_thread.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/interchange/export.h"
#include "tetrad/interchange/export_gguf.h"
#include "tetrad/interchange/import.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// The special tokens of Llama 3.1 behind the bytes and a merge.
BpeDefinition conversation_bpe() {
  BpeDefinition definition = small_bpe();
  definition.added.clear();
  definition.tokens.pop_back();
  for (const char* name : {"<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|eom_id|>",
                           "<|eot_id|>", "<|python_tag|>"}) {
    definition.added.push_back({.id = static_cast<std::int32_t>(definition.tokens.size()), .content = name});
    definition.tokens.emplace_back();
  }
  definition.prefix = {257};
  return definition;
}

class Texts : public ::testing::Test {
 protected:
  /// A folder of Hugging Face with such a tokenizer, which the test then changes.
  void SetUp() override {
    const BpeTokenizer tokenizer(conversation_bpe());
    make_checkpoint(path("run"), small_config(small_llama(false)), tokenizer.hash(),
                    to_tokenizer_json(tokenizer.definition()));
    run_export("run", "hf");
  }
  fs::path path(const std::string& name) const { return folder_ / name; }
  Json json(const std::string& name) const { return Json::parse(read_file(path(name))); }
  void change(const std::string& name, const Json& members) {
    Json file = json(name);
    file.update(members);
    write_file(path(name), file.dump());
  }
  void run_export(const std::string& from, const std::string& to) {
    export_hf(one_thread(), CheckpointSource(path(from)), path(to), {});
  }
  ImportSummary run_import(const std::string& from = "hf", const std::string& to = "back") {
    return import_checkpoint(one_thread(), path(from), path(to), {});
  }

  TemporaryFolder folder_{memory_folder()};
};

TEST_F(Texts, WhatWasImportedIsGivenBack) {
  const Json ends = {258, 260, 261};
  change("hf/config.json",
         {{"max_position_embeddings", 131072}, {"bos_token_id", 257}, {"eos_token_id", ends}});
  change("hf/generation_config.json", {{"bos_token_id", 257}, {"eos_token_id", ends}});
  change("hf/tokenizer_config.json",
         {{"eos_token", "<|eot_id|>"}, {"bos_token", {{"content", "<|begin_of_text|>"}}}});
  EXPECT_TRUE(run_import().warnings.empty());
  run_export("back", "again");
  const Json config = json("again/config.json");
  EXPECT_EQ(config["max_position_embeddings"], 131072);
  EXPECT_EQ(config["bos_token_id"], 257);
  EXPECT_EQ(config["eos_token_id"], ends);
  EXPECT_EQ(json("again/generation_config.json")["eos_token_id"], ends);
  EXPECT_EQ(json("again/generation_config.json")["bos_token_id"], 257);
  const Json names = json("again/tokenizer_config.json");
  EXPECT_EQ(names["eos_token"], "<|eot_id|>");
  EXPECT_EQ(names["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(names["model_max_length"], 131072);
  const auto tokenizer = load_tokenizer_json(path("again/tokenizer.json"));
  EXPECT_EQ(tokenizer->definition().added, conversation_bpe().added);
  EXPECT_EQ(tokenizer->encode("th<|python_tag|><|eom_id|>"), (Ids{256, 262, 260}));
  EXPECT_EQ(tokenizer->definition().prefix, Ids{257});
}

TEST_F(Texts, EveryEndEndsAText) {
  change("hf/generation_config.json", {{"eos_token_id", {260, 261}}});
  run_import();
  const LoadedModel model(path("back"), {}, cpu_backend());
  EXPECT_EQ(model.ends_of_text(), (Ids{260, 261, 258}));  // and the separator of documents
  const LoadedModel own(path("run"), {}, cpu_backend());
  EXPECT_EQ(own.ends_of_text(), Ids{258});
}

TEST_F(Texts, GenerationsConfigurationComesFirst) {
  change("hf/config.json", {{"bos_token_id", nullptr}, {"eos_token_id", 261}});
  change("hf/generation_config.json", {{"bos_token_id", 257}, {"eos_token_id", {258, 261}}});
  run_import();
  run_export("back", "again");
  EXPECT_EQ(json("again/config.json")["eos_token_id"], Json({258, 261}));
  EXPECT_EQ(json("again/config.json")["bos_token_id"], 257);

  fs::remove(path("hf/generation_config.json"));
  fs::remove(path("hf/tokenizer_config.json"));
  change("hf/config.json", {{"max_position_embeddings", nullptr}});
  run_import("hf", "plain");
  run_export("plain", "plain-again");
  EXPECT_EQ(json("plain-again/config.json")["eos_token_id"], 261);
  EXPECT_EQ(json("plain-again/tokenizer_config.json")["eos_token"], "<|eot_id|>");
  EXPECT_EQ(json("plain-again/config.json")["max_position_embeddings"], 4096);
}

TEST_F(Texts, TokensThatTheModelDoesNotHaveAreLeftOut) {
  change("hf/generation_config.json", {{"eos_token_id", {258, 272, 258, -1}}, {"bos_token_id", 100000}});
  const ImportSummary summary = run_import();
  EXPECT_EQ(summary.warnings.size(), 2U);
  run_export("back", "again");
  EXPECT_EQ(json("again/config.json")["eos_token_id"], 258);
  EXPECT_EQ(json("again/config.json")["bos_token_id"], 257);  // config.json's
}

TEST_F(Texts, DamagedFilesAreRefusedOrLeftOut) {
  const std::string good = read_file(path("hf/generation_config.json"));
  for (const Json& bad : {Json("258"), Json(1.5), Json({{"id", 3}}), Json::array({"258"}), Json(true),
                          Json(std::vector<int>(1000, 258))}) {
    change("hf/generation_config.json", {{"eos_token_id", bad}});
    expect_bad_input([&] { run_import(); }, {"generation_config.json", "eos_token_id"});
  }
  write_file(path("hf/generation_config.json"), "{");
  expect_bad_input([&] { run_import(); }, {"generation_config.json"});
  write_file(path("hf/generation_config.json"), good);
  EXPECT_FALSE(fs::exists(path("back")));

  write_file(path("hf/tokenizer_config.json"), R"({"eos_token": "<|eot_id|>", "eos_token": 7})");
  EXPECT_EQ(run_import().warnings.size(), 1U);
  write_file(path("hf/tokenizer_config.json"),
             R"({"eos_token": "not a token", "bos_token": {"content": 3}})");
  EXPECT_TRUE(run_import("hf", "nameless").warnings.empty());
}

/// Training may go on longer texts than those that the model was made for.
TEST_F(Texts, TheContextIsAtLeastThatOfTraining) {
  Config config = small_config(small_llama(false));
  config.model.text.context = 16;
  make_checkpoint(path("long"), config);
  EXPECT_EQ(CheckpointSource(path("long")).context(), 32);
}

TEST_F(Texts, GgufHasThemToo) {
  change("hf/config.json", {{"max_position_embeddings", 100000}});
  change("hf/generation_config.json", {{"eos_token_id", {258, 261}}});
  change("hf/tokenizer_config.json", {{"eos_token", "<|eot_id|>"}});
  run_import();
  const CheckpointSource source(path("back"));
  const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
  export_gguf(source, path("model.gguf"), {}, plan, cpu_backend());
  run_import("model.gguf", "from-gguf");
  const TextConfig text = CheckpointSource(path("from-gguf")).config().model.text;
  EXPECT_EQ(text.context, 100000);
  EXPECT_EQ(text.begin, 257);
  EXPECT_EQ(text.ends, std::vector<std::int64_t>{261});  // it has one; llama.cpp knows others by their names
}

}  // namespace
}  // namespace tetrad::testing
