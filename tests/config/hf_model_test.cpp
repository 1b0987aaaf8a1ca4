// SPDX-License-Identifier: Apache-2.0
#include "tetrad/config/hf_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/config/config.h"
#include "tetrad/model/presets.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using testing::TemporaryFolder;
using testing::write_file;
using Json = nlohmann::json;

/// As the files of the published checkpoints say it.
Json llama_json() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu",
    "hidden_size": 16384, "initializer_range": 0.02, "intermediate_size": 53248,
    "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 128,
    "num_hidden_layers": 126, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}

Json nemotron_json() {
  return Json::parse(R"({
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "attention_bias": false,
    "attention_dropout": 0.0, "attention_head_dim": 128, "chunk_size": 128, "conv_kernel": 4, "expand": 2,
    "hidden_dropout": 0.0, "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "initializer_range": 0.02, "intermediate_size": 21504, "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 128, "mamba_proj_bias": false,
    "mlp_bias": false, "mlp_hidden_act": "relu2", "n_groups": 8, "num_attention_heads": 32,
    "num_hidden_layers": 52, "num_key_value_heads": 4, "rms_norm_eps": 1e-05, "sliding_window": null,
    "ssm_state_size": 128, "tie_word_embeddings": false, "use_bias": false, "use_conv_bias": true,
    "vocab_size": 131072})");
}

/// The preset under the name that a parsed text has.
ModelConfig nameless(std::string_view preset) {
  ModelConfig model = *find_preset(preset);
  model.name = ModelConfig{}.name;
  return model;
}

ModelConfig parse(const Json& json) { return parse_hf_model(json.dump(), "config.json"); }

Json with(Json json, const char* key, Json value) {
  json[key] = std::move(value);
  return json;
}

TEST(HfModel, ReadsPublishedModels) {
  EXPECT_EQ(parse(llama_json()), nameless("llama3.1-405b"));
  EXPECT_EQ(parse(nemotron_json()), nameless("nemotron-h-8b"));
}

TEST(HfModel, KnowsWhatMissingFieldsMean) {
  Json json = llama_json();
  for (const char* key : {"architectures", "num_key_value_heads", "rope_scaling", "rope_theta",
                          "rms_norm_eps", "tie_word_embeddings", "attention_bias"})
    json.erase(key);
  const ModelConfig model = parse(json);
  EXPECT_EQ(model.kv_heads, 128);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.rope, (RopeConfig{.theta = 10000}));
  EXPECT_EQ(model.norm_epsilon, 1e-6f);
  EXPECT_FALSE(model.tied);
}

TEST(HfModel, ReadsTheNewerSpellings) {
  Json json = llama_json();
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = 500000.0;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  EXPECT_EQ(parse(json), nameless("llama3.1-405b"));

  Json hybrid = nemotron_json();
  hybrid["layers_block_type"] = Json::array();
  for (const char letter : hybrid["hybrid_override_pattern"].get<std::string>())
    hybrid["layers_block_type"].push_back(letter == 'M' ? "mamba" : letter == '*' ? "attention" : "mlp");
  hybrid.erase("hybrid_override_pattern");
  hybrid["head_dim"] = 128;
  hybrid.erase("attention_head_dim");
  hybrid["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  EXPECT_EQ(parse(hybrid), nameless("nemotron-h-8b"));
  for (Json& type : hybrid["layers_block_type"])
    type = type == "mamba" ? "linear_attention" : type == "attention" ? "full_attention" : "mlp";
  EXPECT_EQ(parse(hybrid), nameless("nemotron-h-8b"));
}

/// As the file of Qwen3-0.6B says it.
TEST(HfModel, ReadsQwen3) {
  const Json json = Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "num_attention_heads": 16,
    "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
  const ModelConfig model = parse(json);
  EXPECT_TRUE(model.qk_norm);
  EXPECT_TRUE(model.tied);
  EXPECT_EQ(model.blocks(), 56);
  EXPECT_EQ(model.head_dim, 128) << "and not hidden_size / num_attention_heads";
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.rope, (RopeConfig{.theta = 1e6}));
  EXPECT_EQ(parameter_count(model), 596'049'920);
  expect_bad_input([&] { parse(with(json, "use_sliding_window", true)); }, {"use_sliding_window"});
  expect_bad_input([&] { parse(with(json, "attention_bias", true)); }, {"attention_bias"});
  for (const char* key : {"head_dim", "num_key_value_heads"}) {
    Json missing = json;
    missing.erase(key);
    expect_bad_input([&] { parse(missing); }, {key, "missing"});
  }
}

TEST(HfModel, NeedsNoHeadsWithoutAttention) {
  Json json = with(nemotron_json(), "hybrid_override_pattern", "M-M-");
  json["num_hidden_layers"] = 4;
  json["num_attention_heads"] = json["num_key_value_heads"] = json["attention_head_dim"] = 0;
  EXPECT_EQ(parse(json).pattern, "M-M-");
  json["hybrid_override_pattern"] = "M-M*";
  expect_bad_input([&] { parse(json); }, {"model.heads is 0"});
}

TEST(HfModel, ReadsPythonsInfinity) {
  std::string text = with(nemotron_json(), "time_step_limit", "@").dump();
  text.replace(text.find("\"@\""), 3, "[0.0, Infinity]");
  EXPECT_EQ(parse_hf_model(text, "config.json"), nameless("nemotron-h-8b"));
  // Nowhere else does it mean anything.
  text = with(llama_json(), "rope_theta", "@").dump();
  text.replace(text.find("\"@\""), 3, "Infinity");
  expect_bad_input([&] { parse_hf_model(text, "config.json"); }, {"rope_theta"});
}

TEST(HfModel, IsAcceptedAsModel) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "Some-Model");
  const std::string path = folder.file("Some-Model/config.json");
  write_file(path, llama_json().dump());
  ModelConfig expected = nameless("llama3.1-405b");
  expected.name = "Some-Model";
  Provenance provenance;
  const std::string yaml = "model: " + path;
  EXPECT_EQ(parse_config(yaml, "a.yaml", {}, &provenance).model, expected);
  EXPECT_EQ(provenance.origins.at("model.hidden"), path);
  EXPECT_EQ(parse_config("model: " + folder.file("Some-Model"), "a.yaml").model, expected);
  expected.vocab = 512;
  const std::vector<std::string> overrides = {"model.vocab=512"};
  EXPECT_EQ(parse_config(yaml, "a.yaml", overrides).model, expected);
  write_file(path, with(llama_json(), "hidden_act", "gelu").dump());
  expect_bad_input([&] { parse_config(yaml, "a.yaml"); }, {"a.yaml:1: model:", path, "hidden_act"}, yaml);
}

TEST(HfModel, RefusesWhatWeDoNotHave) {
  const Json llama = llama_json();
  const Json hybrid = nemotron_json();
  const std::vector<std::pair<Json, std::vector<std::string>>> cases = {
      {with(llama, "architectures", {"GPT2LMHeadModel"}), {"\"GPT2LMHeadModel\"", "not supported"}},
      {with(llama, "architectures", "LlamaForCausalLM"), {"architectures: expected a list"}},
      {with(llama, "architectures", Json::array()), {"architectures", "found array"}},
      {with(llama, "hidden_act", "gelu"), {"hidden_act is \"gelu\"", "\"silu\""}},
      {with(llama, "attention_bias", true), {"attention_bias is true", "only false is"}},
      {with(llama, "mlp_bias", true), {"mlp_bias"}},
      {with(llama, "attention_dropout", 0.1), {"attention_dropout", "dropout"}},
      {with(llama, "rope_scaling", {{"rope_type", "yarn"}}), {"\"yarn\"", "llama3 and default"}},
      {with(llama, "rope_scaling", {{"type", "linear"}, {"factor", 2}}), {"\"linear\""}},
      {with(llama, "rope_scaling", 3), {"rope_scaling: expected an object"}},
      {with(llama, "rope_scaling", {{"rope_type", "llama3"}}), {"rope_scaling: factor is missing"}},
      {with(llama, "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
       {"rope_parameters: partial_rotary_factor"}},
      {with(llama, "rope_theta", 1e39), {"rope_theta", "32-bit float"}},
      {with(llama, "rms_norm_eps", -1e300), {"rms_norm_eps", "32-bit float"}},
      {with(llama, "partial_rotary_factor", 0.5), {"partial_rotary_factor"}},
      {with(llama, "hidden_size", 16385), {"model.hidden", "multiple of 16"}},
      {with(llama, "hidden_size", -5), {"hidden_size", "whole number", "-5"}},
      {with(llama, "hidden_size", 1.5), {"hidden_size", "1.5"}},
      {with(llama, "hidden_size", "4096"), {"hidden_size"}},
      {with(llama, "hidden_size", nullptr), {"hidden_size is missing"}},
      {with(llama, "hidden_size", 1ULL << 40), {"hidden_size", "1099511627776"}},
      {with(llama, "num_attention_heads", 0), {"model.heads is 0"}},
      {with(llama, "num_hidden_layers", 2'000'000'000), {"num_hidden_layers is 2000000000"}},
      {with(llama, "rope_theta", "x"), {"rope_theta: expected a number"}},
      {with(llama, "tie_word_embeddings", 1), {"tie_word_embeddings: expected true or false"}},
      {with(hybrid, "hybrid_override_pattern", "MEM*"), {"hybrid_override_pattern is \"MEM*\""}},
      {with(hybrid, "hybrid_override_pattern", "M-"), {"num_hidden_layers is 52", "2 letters"}},
      {with(hybrid, "hybrid_override_pattern", nullptr), {"hybrid_override_pattern is missing"}},
      {with(with(hybrid, "hybrid_override_pattern", nullptr), "layers_block_type", {"moe"}),
       {"layers_block_type", "\"moe\""}},
      {with(hybrid, "mlp_hidden_act", "silu"), {"mlp_hidden_act is \"silu\"", "\"relu2\""}},
      {with(hybrid, "mamba_hidden_act", "gelu"), {"mamba_hidden_act"}},
      {with(hybrid, "use_bias", true), {"use_bias"}},
      {with(hybrid, "use_conv_bias", false), {"use_conv_bias is false", "only true is"}},
      {with(hybrid, "time_step_limit", {0.0, 0.1}), {"time_step_limit"}},
      {with(hybrid, "mamba_num_heads", nullptr), {"mamba_num_heads is missing"}},
  };
  for (const auto& c : cases) expect_bad_input([&] { parse(c.first); }, c.second, c.first.dump());
}

TEST(HfModel, RefusesWhatIsNoJsonObject) {
  const auto expect = [](const std::string& text, const std::vector<std::string>& words) {
    expect_bad_input([&] { parse_hf_model(text, "config.json"); }, words, text.substr(0, 100));
  };
  expect("", {"config.json", "not valid JSON"});
  expect("[]", {"holds an object"});
  expect("{", {"not valid JSON"});
  expect("{\"a\": 1e999}", {"not valid JSON"});
  expect("{\"hidden_size\": 1, \"hidden_size\": 2}", {"the key \"hidden_size\" twice"});
  expect("{}", {"the architecture \"\" is not supported"});
  expect("{\"a\":" + std::string(1'000'000, '['), {"more than 32 nested"});
  expect("{\"architectures\": [\"Llama\\u0001\"]}", {"Llama\\x01"});
}

}  // namespace
}  // namespace tetrad
