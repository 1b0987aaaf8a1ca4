// SPDX-License-Identifier: Apache-2.0
// Export to Hugging Face's layout and import of it: what goes around comes around, to the bit.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "interchange/checkpoints.h"
#include "support/errors.h"
#include "support/one_thread.h"
#include "tetrad/config/hf_model.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/interchange/export.h"
#include "tetrad/interchange/hf_config.h"
#include "tetrad/interchange/import.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/f16.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kOneFile = ~0ULL;

class Hf : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_ / name; }
  Json json(const fs::path& file) const { return Json::parse(read_file(file)); }

  TemporaryFolder folder_{memory_folder()};
};

class HfFamilies : public Hf, public ::testing::WithParamInterface<Example> {};

TEST_P(HfFamilies, TheMapHasEveryParameterOfTheDecoder) {
  const ModelConfig& model = GetParam().model;
  Decoder decoder(cpu_backend(), model, 1, 16);
  const std::vector<MappedParameter> map = tensor_map(model, family_of(model));
  ASSERT_EQ(map.size(), decoder.parameters().size());
  std::set<std::string> theirs;
  std::set<std::string> linears;
  for (Linear* linear : decoder.linears()) linears.insert(linear->name());
  for (std::size_t i = 0; i < map.size(); ++i) {
    EXPECT_EQ(map[i].name, decoder.parameters()[i]->name);
    EXPECT_EQ(map[i].shape, decoder.parameters()[i]->shape) << map[i].name;
    std::int64_t row = 0;
    for (const Piece& piece : map[i].pieces) {
      EXPECT_EQ(piece.first_row, row) << piece.names.hf;
      row += piece.shape[0];
      EXPECT_EQ(element_count(piece.shape), piece.shape[0] * map[i].columns()) << piece.names.hf;
      EXPECT_TRUE(theirs.insert(piece.names.hf).second) << piece.names.hf;
    }
    EXPECT_EQ(row, map[i].rows()) << map[i].name;
    EXPECT_EQ(linears.contains(map[i].linear), !map[i].linear.empty()) << map[i].name;
    linears.erase(map[i].linear);
  }
  EXPECT_TRUE(linears.empty());
}

TEST_P(HfFamilies, ConfigsAreReadBack) {
  ModelConfig model = GetParam().model;
  const std::string text =
      hf_config(model, family_of(model), {.context = 32, .dtype = DType::bf16, .ends_of_text = {3}}).dump();
  const ModelConfig back = parse_hf_model(text, "config.json");
  model.name = back.name;
  model.mamba.chunk = back.mamba.chunk;
  EXPECT_EQ(back, model) << text;
}

TEST_P(HfFamilies, F32ComesBackToTheBit) {
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(GetParam().model));
  for (const std::uint64_t shard_bytes : {kOneFile, std::uint64_t{60'000}}) {
    const std::string name = shard_bytes == kOneFile ? "single" : "sharded";
    const ExportSummary summary = export_hf(one_thread(), CheckpointSource(path("run")), path(name),
                                            {DType::f32, shard_bytes, Overwrite::no});
    EXPECT_EQ(summary.shards == 1, shard_bytes == kOneFile);
    EXPECT_EQ(fs::exists(path(name) / "model.safetensors.index.json"), summary.shards > 1);
    import_checkpoint(one_thread(), path(name), path(name + "-back"), {"test", Overwrite::no});
    expect_same_weights(read_weights(path(name + "-back")), read_weights(checkpoint));
  }
}

TEST_P(HfFamilies, NarrowTypesAreRoundedOnceAndThenStay) {
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(GetParam().model));
  const CheckpointSource source(checkpoint);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string name(name_of(dtype));
    export_hf(one_thread(), source, path(name), {dtype, kOneFile, Overwrite::no});
    import_checkpoint(one_thread(), path(name), path(name + "-back"), {"test", Overwrite::no});
    auto expected = read_weights(checkpoint);
    for (auto& [parameter, values] : expected) {
      const bool stays =
          parameter.ends_with(".a_log") || parameter.ends_with(".d") || parameter.ends_with(".dt_bias");
      if (stays) continue;
      for (float& value : values)
        value = dtype == DType::bf16 ? round_to_bf16(value) : F16::decode(F16::encode(value));
    }
    expect_same_weights(read_weights(path(name + "-back")), expected);
  }
}

TEST_P(HfFamilies, AnImportComputesWhatTheOriginalDoes) {
  make_checkpoint(path("run"), small_config(GetParam().model));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::f32, kOneFile, Overwrite::no});
  import_checkpoint(one_thread(), path("hf"), path("back"), {"test", Overwrite::no});
  const std::vector<std::int32_t> tokens = {1, 200, 33, 4, 271, 0, 17, 90};
  std::vector<std::vector<float>> logits;
  for (const char* name : {"run", "back"}) {
    LoadedModel model(path(name), {.precision = "f32"}, cpu_backend());
    Session session = model.decoder().start(16);
    Pass pass = model.pass();
    logits.push_back(model.decoder().extend(pass, session, tokens, false));
  }
  EXPECT_EQ(logits[0], logits[1]);
}

INSTANTIATE_TEST_SUITE_P(All, HfFamilies, ::testing::ValuesIn(examples()),
                         [](const auto& test) { return test.param.name; });

/// Names and shapes of an export, as docs and models of others have them.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes_in(const fs::path& file, const std::string& part) {
  Shapes shapes;
  const SafetensorsFile opened(file);
  for (const TensorInfo& info : opened.tensors())
    if (part.empty() ? info.name.find(".layers.") == std::string::npos : info.name.starts_with(part))
      shapes[info.name.substr(part.size())] = info.shape;
  return shapes;
}

TEST_F(Hf, TensorsAreCalledAsEverybodyCallsThem) {
  make_checkpoint(path("llama"), small_config(small_llama(false)));
  export_hf(one_thread(), CheckpointSource(path("llama")), path("llama-hf"), {DType::bf16, kOneFile});
  const fs::path llama = path("llama-hf") / "model.safetensors";
  EXPECT_EQ(shapes_in(llama, ""), (Shapes{{"model.embed_tokens.weight", {272, 64}},
                                          {"model.norm.weight", {64}},
                                          {"lm_head.weight", {272, 64}}}));
  EXPECT_EQ(shapes_in(llama, "model.layers.2."), (Shapes{{"input_layernorm.weight", {64}},
                                                         {"self_attn.q_proj.weight", {128, 64}},
                                                         {"self_attn.k_proj.weight", {64, 64}},
                                                         {"self_attn.v_proj.weight", {64, 64}},
                                                         {"self_attn.o_proj.weight", {64, 128}},
                                                         {"post_attention_layernorm.weight", {64}},
                                                         {"mlp.gate_proj.weight", {192, 64}},
                                                         {"mlp.up_proj.weight", {192, 64}},
                                                         {"mlp.down_proj.weight", {64, 192}}}));
  make_checkpoint(path("qwen3"), small_config(small_qwen3(false)));
  export_hf(one_thread(), CheckpointSource(path("qwen3")), path("qwen3-hf"), {DType::bf16, kOneFile});
  Shapes qwen3 = shapes_in(llama, "model.layers.2.");
  qwen3["self_attn.q_norm.weight"] = qwen3["self_attn.k_norm.weight"] = {32};
  EXPECT_EQ(shapes_in(path("qwen3-hf") / "model.safetensors", "model.layers.2."), qwen3);
  make_checkpoint(path("hybrid"), small_config(small_hybrid(true)));
  export_hf(one_thread(), CheckpointSource(path("hybrid")), path("hybrid-hf"), {DType::bf16, kOneFile});
  const fs::path hybrid = path("hybrid-hf") / "model.safetensors";
  EXPECT_EQ(shapes_in(hybrid, ""), (Shapes{{"backbone.embeddings.weight", {272, 64}},
                                           {"backbone.norm_f.weight", {64}},
                                           {"lm_head.weight", {272, 64}}}));
  // 8 heads of 16, 2 groups with a state of 18
  EXPECT_EQ(shapes_in(hybrid, "backbone.layers.2."), (Shapes{{"norm.weight", {64}},
                                                             {"mixer.in_proj.weight", {336, 64}},
                                                             {"mixer.conv1d.weight", {200, 1, 4}},
                                                             {"mixer.conv1d.bias", {200}},
                                                             {"mixer.A_log", {8}},
                                                             {"mixer.D", {8}},
                                                             {"mixer.dt_bias", {8}},
                                                             {"mixer.norm.weight", {128}},
                                                             {"mixer.out_proj.weight", {64, 128}}}));
  EXPECT_EQ(shapes_in(hybrid, "backbone.layers.3.").at("mixer.k_proj.weight"),
            (std::vector<std::int64_t>{16, 64}));
  EXPECT_EQ(shapes_in(hybrid, "backbone.layers.4."), (Shapes{{"norm.weight", {64}},
                                                             {"mixer.up_proj.weight", {144, 64}},
                                                             {"mixer.down_proj.weight", {64, 144}}}));
}

/// The rows of our fused matrices, counted by hand.
TEST_F(Hf, RowsGoToTheTensorsThatTheyAre) {
  struct Part {
    std::string theirs, ours;
    std::size_t first, rows;
  };
  const auto expect = [&](const ModelConfig& model, const std::vector<Part>& parts) {
    const auto weights = read_weights(make_checkpoint(path(model.name), small_config(model)));
    export_hf(one_thread(), CheckpointSource(path(model.name)), path(model.name + "-hf"),
              {DType::f32, kOneFile});
    const SafetensorsFile file(path(model.name + "-hf") / "model.safetensors");
    for (const Part& part : parts) {
      const std::size_t row = 64 * sizeof(float);
      const auto ours =
          std::as_bytes(std::span(weights.at(part.ours))).subspan(part.first * row, part.rows * row);
      EXPECT_TRUE(std::ranges::equal(file.bytes(*file.find(part.theirs)), ours)) << part.theirs;
    }
  };
  expect(small_llama(false), {{"model.layers.2.self_attn.q_proj.weight", "blocks.4.qkv.weight", 0, 128},
                              {"model.layers.2.self_attn.k_proj.weight", "blocks.4.qkv.weight", 128, 64},
                              {"model.layers.2.self_attn.v_proj.weight", "blocks.4.qkv.weight", 192, 64},
                              {"model.layers.2.mlp.gate_proj.weight", "blocks.5.up.weight", 0, 192},
                              {"model.layers.2.mlp.up_proj.weight", "blocks.5.up.weight", 192, 192},
                              {"model.embed_tokens.weight", "embedding.weight", 0, 272},
                              {"lm_head.weight", "head.weight", 0, 272}});
  expect(small_hybrid(true), {{"backbone.layers.3.mixer.q_proj.weight", "blocks.3.qkv.weight", 0, 64},
                              {"backbone.layers.3.mixer.k_proj.weight", "blocks.3.qkv.weight", 64, 16},
                              {"backbone.layers.3.mixer.v_proj.weight", "blocks.3.qkv.weight", 80, 16},
                              {"backbone.layers.2.mixer.in_proj.weight", "blocks.2.in.weight", 0, 336},
                              {"lm_head.weight", "embedding.weight", 0, 272}});
}

/// transformers 5 calls Nemotron-H's backbone `model`; caches of Hugging Face are symbolic links.
TEST_F(Hf, OtherNamesOfTheSameAreRead) {
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(small_hybrid(false)));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::f32, kOneFile});
  const SafetensorsFile file(path("hf") / "model.safetensors");
  const auto renamed = [](const std::string& name) {
    return name.starts_with("backbone.") ? "model." + name.substr(9) : name;
  };
  std::vector<TensorDeclaration> tensors;
  for (const TensorInfo& info : file.tensors())
    tensors.push_back({renamed(info.name), info.dtype, info.shape});
  SafetensorsWriter writer(path("blob"), tensors);
  for (const TensorInfo& info : file.tensors()) writer.write(renamed(info.name), file.bytes(info));
  writer.commit();
  fs::create_directory(path("other"));
  fs::create_symlink(path("blob"), path("other") / "model.safetensors");
  fs::create_symlink(path("hf") / "config.json", path("other") / "config.json");
  import_checkpoint(one_thread(), path("other"), path("back"), {});
  expect_same_weights(read_weights(path("back")), read_weights(checkpoint));
}

TEST_F(Hf, AModelNeedsNoAttention) {
  ModelConfig model = small_hybrid(false);
  model.pattern = "M-M";
  model.heads = model.kv_heads = model.head_dim = 0;
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(model));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::f32, kOneFile});
  import_checkpoint(one_thread(), path("hf"), path("back"), {});
  expect_same_weights(read_weights(path("back")), read_weights(checkpoint));
}

TEST_F(Hf, EveryTensorMayHaveAShardOfItsOwn) {
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(small_hybrid(true)));
  const ExportSummary summary =
      export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::f32, 1});
  EXPECT_EQ(summary.shards, summary.tensors);
  import_checkpoint(one_thread(), path("hf"), path("back"), {});
  expect_same_weights(read_weights(path("back")), read_weights(checkpoint));
}

TEST_F(Hf, FilesAreAsTransformersWantsThem) {
  make_checkpoint(path("run"), small_config(small_llama(true)), ByteTokenizer().hash());
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::bf16, 60'000, Overwrite::no});
  const Json config = json(path("hf") / "config.json");
  EXPECT_EQ(config["architectures"], Json({"LlamaForCausalLM"}));
  EXPECT_EQ(config["num_hidden_layers"], 3);
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["eos_token_id"], 0);
  EXPECT_EQ(config["max_position_embeddings"], 512);
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(config["rms_norm_eps"].dump(), "1e-05");
  EXPECT_EQ(json(path("hf") / "generation_config.json")["eos_token_id"], 0);

  const Json index = json(path("hf") / "model.safetensors.index.json");
  std::set<std::string> files;
  std::uint64_t total = 0;
  for (const auto& [tensor, file] : index["weight_map"].items()) files.insert(file.get<std::string>());
  for (const std::string& name : files) {
    const SafetensorsFile file(path("hf") / name);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    for (const TensorInfo& info : file.tensors()) {
      EXPECT_EQ(index["weight_map"][info.name], name);
      EXPECT_EQ(info.dtype, DType::bf16);
      total += info.end - info.begin;
    }
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(*files.begin(), "model-00001-of-0000" + std::to_string(files.size()) + ".safetensors");
  EXPECT_FALSE(index["weight_map"].contains("lm_head.weight"));
}

TEST_F(Hf, AModelWithNormsOfHeadsIsAQwen3) {
  make_checkpoint(path("run"), small_config(small_qwen3(true)));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {});
  const Json config = json(path("hf") / "config.json");
  EXPECT_EQ(config["architectures"], Json({"Qwen3ForCausalLM"}));
  EXPECT_EQ(config["model_type"], "qwen3");
  EXPECT_EQ(config["head_dim"], 32);
  EXPECT_EQ(config["attention_bias"], false);
}

/// transformers takes this value for the least time step; where it sets initial values, it wants its
/// logarithm.
TEST_F(Hf, NoTimeStepIsTooSmall) {
  make_checkpoint(path("run"), small_config(small_hybrid(false)));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {});
  const double least = json(path("hf") / "config.json")["time_step_min"];
  EXPECT_GT(least, 0);
  EXPECT_LT(least, 1e-20);
}

TEST_F(Hf, BytesComeBackAsBytes) {
  make_checkpoint(path("run"), small_config(small_llama(false)), ByteTokenizer().hash());
  const CheckpointSource source(path("run"));
  export_hf(one_thread(), source, path("hf"), {DType::bf16, kOneFile, Overwrite::no});
  const auto tokenizer = load_tokenizer_json(path("hf") / "tokenizer.json");
  const std::string text = "na\xC3\xAFve \x01\xFF\n";
  EXPECT_EQ(tokenizer->encode(text), ByteTokenizer().encode(text));
  const ImportSummary summary =
      import_checkpoint(one_thread(), path("hf"), path("back"), {"test", Overwrite::no});
  EXPECT_EQ(summary.tokenizer, "bytes");
  EXPECT_EQ(load_state(path("back")).tokenizer_hash, ByteTokenizer().hash());
  EXPECT_TRUE(summary.warnings.empty());
}

TEST_F(Hf, ATokenizerTravels) {
  BpeDefinition definition = small_bpe();
  definition.tokens.emplace_back();
  definition.added.push_back({.id = 258, .content = "< begin >"});
  definition.prefix = {258};
  const BpeTokenizer tokenizer(definition);
  make_checkpoint(path("run"), small_config(small_llama(false)), tokenizer.hash(),
                  to_tokenizer_json(definition));
  export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::bf16, kOneFile, Overwrite::no});
  EXPECT_EQ(json(path("hf") / "tokenizer_config.json")["eos_token"], "<|endoftext|>");
  EXPECT_EQ(json(path("hf") / "tokenizer_config.json")["bos_token"], "< begin >");
  EXPECT_EQ(json(path("hf") / "tokenizer_config.json")["model_max_length"], 512);
  EXPECT_EQ(json(path("hf") / "config.json")["eos_token_id"], 257);
  EXPECT_EQ(json(path("hf") / "config.json")["bos_token_id"], 258);
  import_checkpoint(one_thread(), path("hf"), path("back"), {"test", Overwrite::no});
  EXPECT_EQ(load_state(path("back")).tokenizer_hash, tokenizer.hash());
  EXPECT_EQ(CheckpointSource(path("back")).tokenizer()->hash(), tokenizer.hash());

  // One that we do not read is left out with a word about it, and one that is too large as well.
  write_file(path("hf") / "tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  const ImportSummary summary =
      import_checkpoint(one_thread(), path("hf"), path("without"), {"test", Overwrite::no});
  EXPECT_EQ(summary.tokenizer, "");
  ASSERT_EQ(summary.warnings.size(), 1U);
  EXPECT_FALSE(fs::exists(path("without") / "tokenizer.json"));
}

TEST_F(Hf, ModelsThatNobodyElseHasAreRefused) {
  ModelConfig model = small_llama(false);
  model.rope.reset();
  expect_bad_input([&] { family_of(model); }, {"neither a Llama", "Nemotron-H", "no RoPE"});
  model = small_hybrid(false);
  model.qk_norm = true;
  expect_bad_input([&] { family_of(model); }, {"QK-norm"});
  model.pattern = "M-M";  // it has no attention that could have one
  EXPECT_EQ(family_of(model), Family::nemotron_h);
  model = small_hybrid(false);
  model.activation = Activation::swiglu;
  expect_bad_input([&] { family_of(model); }, {"SwiGLU"});
}

TEST_F(Hf, ValuesThatDoNotFitF16AreRefused) {
  const fs::path checkpoint = make_checkpoint(path("run"), small_config(small_llama(true)));
  const CheckpointSource source(checkpoint);
  DenseEncoder encoder(one_thread(), DType::f16);
  const MappedParameter& norm = source.parameters()[1];
  ShardedWriter writer(folder_.path(), encoder.declare(norm), kOneFile);
  std::vector<float> values(64, 65519.0f);
  values[5] = 65520.0f;
  expect_bad_input([&] { encoder.write(norm, values, writer); }, {"blocks.0.norm.weight", "F16", "bf16"});
  DenseEncoder narrow(one_thread(), DType::bf16);
  values[5] = 3.4e38f;  // finite, but beyond the largest BF16 by more than half a step
  ShardedWriter other(folder_.path(), narrow.declare(norm), kOneFile);
  expect_bad_input([&] { narrow.write(norm, values, other); }, {"blocks.0.norm.weight", "BF16", "f32"});
}

/// Nothing but what was there, whatever goes wrong on the way.
TEST_F(Hf, WhatFailsLeavesNothingBehind) {
  make_checkpoint(path("run"), small_config(small_llama(true)));
  const CheckpointSource source(path("run"));
  export_hf(one_thread(), source, path("hf"), {DType::bf16, 60'000});
  import_checkpoint(one_thread(), path("hf"), path("imported"), {});
  const std::string config = read_file(path("hf") / "config.json");
  const std::string manifest = read_file(path("imported") / "MANIFEST.json");
  const auto expect_untouched = [&](const std::string& why) {
    EXPECT_EQ(folder_.files(), (std::vector<std::string>{"hf", "imported", "run"})) << why;
    EXPECT_EQ(read_file(path("hf") / "config.json"), config) << why;
    EXPECT_EQ(read_file(path("imported") / "MANIFEST.json"), manifest) << why;
  };
  const ExportOptions force{.dtype = DType::f32, .shard_bytes = 60'000, .overwrite = Overwrite::yes};
  for (const char* point : {"file.create", "file.write", "file.fsync", "file.close", "file.rename"})
    for (const char* time : {"@1", "@2", "@3", "@5"}) {
      const std::string why = std::string(point) + "=enospc" + time;
      set_failpoints(why);
      EXPECT_THROW(export_hf(one_thread(), source, path("hf"), force), Error) << why;
      set_failpoints(why);
      EXPECT_THROW(export_hf(one_thread(), source, path("new"), force), Error) << why;
      expect_untouched(why);
      if (std::string_view(time) == "@5") continue;  // an import is fewer files
      set_failpoints(why);
      EXPECT_THROW(
          import_checkpoint(one_thread(), path("hf"), path("imported"), {.overwrite = Overwrite::yes}), Error)
          << why;
      expect_untouched(why);
    }
  set_failpoints("");
  // Somebody who watches the progress may end it.
  const Progress stop = [](std::int64_t done, std::int64_t total) {
    EXPECT_LE(done, total);
    if (done == 3) throw Error("enough", ExitCode::failure);
  };
  EXPECT_THROW(export_hf(one_thread(), source, path("new"), {.progress = stop}), Error);
  EXPECT_THROW(import_checkpoint(one_thread(), path("hf"), path("new"), {.progress = stop}), Error);
  expect_untouched("progress");
}

TEST_F(Hf, FoldersAreOnlyReplacedIfTheyAreOurs) {
  make_checkpoint(path("run"), small_config(small_llama(true)));
  const CheckpointSource source(path("run"));
  const ExportOptions plain{DType::bf16, kOneFile, Overwrite::no};
  const ExportOptions force{DType::f32, kOneFile, Overwrite::yes};
  fs::create_directory(path("empty"));
  export_hf(one_thread(), source, path("empty"), plain);
  expect_bad_input([&] { export_hf(one_thread(), source, path("empty"), plain); }, {"not empty", "--force"});
  export_hf(one_thread(), source, path("empty"), force);
  EXPECT_EQ(json(path("empty") / "config.json")["torch_dtype"], "float32");

  fs::create_directory(path("mine"));
  write_file(path("mine") / "thesis.txt", "all of it");
  expect_bad_input([&] { export_hf(one_thread(), source, path("mine"), force); },
                   {"not something that this command"});
  EXPECT_EQ(read_file(path("mine") / "thesis.txt"), "all of it");
  expect_bad_input(
      [&] {
        import_checkpoint(one_thread(), path("empty"), path("run"), {"test", Overwrite::yes});
      },
      {"run"});
  expect_bad_input(
      [&] {
        import_checkpoint(one_thread(), path("empty"), source.path(), {"test", Overwrite::yes});
      },
      {"step"});
  // Nothing half-written lies about.
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"empty", "mine", "run"}));
}

/// An export that a test spoils in one way.
class BadFolders : public Hf {
 protected:
  void SetUp() override {
    make_checkpoint(path("run"), small_config(small_llama(true)));
    export_hf(one_thread(), CheckpointSource(path("run")), path("hf"), {DType::bf16, 60'000, Overwrite::no});
    index_ = json(path("hf") / "model.safetensors.index.json");
  }
  void expect_refused(const std::vector<std::string>& words) {
    expect_bad_input(
        [&] {
          import_checkpoint(one_thread(), path("hf"), path("back"), {"test", Overwrite::no});
        },
        words);
    EXPECT_FALSE(fs::exists(path("back")));
    EXPECT_EQ(folder_.files(), (std::vector<std::string>{"hf", "run"}));
  }
  void write_index() { write_file(path("hf") / "model.safetensors.index.json", index_.dump()); }
  fs::path shard_of(const std::string& tensor) {
    return path("hf") / index_["weight_map"][tensor].get<std::string>();
  }
  /// The shard of a tensor with `change` applied to all its tensors; nothing: the tensor is left out.
  void rewrite(const fs::path& shard,
               const std::function<std::optional<TensorDeclaration>(TensorDeclaration)>& change,
               float fill = 0) {
    std::vector<TensorDeclaration> kept;
    {
      const SafetensorsFile file(shard);
      for (const TensorInfo& info : file.tensors())
        if (auto changed = change({info.name, info.dtype, info.shape})) kept.push_back(*changed);
    }
    SafetensorsWriter writer(shard, kept);
    for (const TensorDeclaration& tensor : kept) {
      std::vector<float> values(checked_tensor_bytes("test", tensor.dtype, tensor.shape) / 4 + 1, fill);
      writer.write(
          tensor.name,
          std::as_bytes(std::span(values)).first(checked_tensor_bytes("test", tensor.dtype, tensor.shape)));
    }
    writer.commit();
  }

  Json index_;
};

TEST_F(BadFolders, ShardsOutsideOfTheFolder) {
  for (const char* name :
       {"../evil.safetensors", "/etc/passwd", "sub/a.safetensors", ".hidden.safetensors", "model.bin", ""}) {
    index_["weight_map"]["model.norm.weight"] = name;
    write_index();
    expect_refused({"shard"});
  }
  index_["weight_map"]["model.norm.weight"] = 7;
  write_index();
  expect_refused({"model.norm.weight"});
}

TEST_F(BadFolders, IndexAndShardsThatDisagree) {
  const fs::path shard = shard_of("model.norm.weight");
  const std::string bytes = read_file(shard);
  fs::remove(shard);
  expect_refused({"missing", shard.filename().string()});
  write_file(shard, bytes.substr(0, bytes.size() - 2));
  expect_refused({shard.filename().string(), "truncated", "fetch the file again"});
  write_file(shard, bytes);
  index_["weight_map"].erase("model.norm.weight");
  write_index();
  expect_refused({"model.norm.weight", "does not list"});
  index_["weight_map"]["model.norm.weight"] = index_["weight_map"]["model.embed_tokens.weight"];
  write_index();
  expect_refused({"model.norm.weight"});
  const std::vector<std::pair<std::string, std::string>> indices = {
      {R"({"weight_map": []})", "weight_map"},
      {R"({"weight_map": {}})", "weight_map"},
      {R"({"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}})", "twice"},
      {"{\"weight_map\": " + std::string(100'000, '['), "nested"},
      {"{", "not valid JSON"},
      {"", "not valid JSON"}};
  for (const auto& [text, word] : indices) {
    write_file(path("hf") / "model.safetensors.index.json", text);
    expect_refused({"model.safetensors.index.json", word});
  }
}

/// One file in the place of the shards: `header` as it is, then `data` zero bytes.
TEST_F(BadFolders, DamagedHeaders) {
  const auto expect = [&](const std::string& header, std::size_t data,
                          const std::vector<std::string>& words) {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> 8 * i & 0xFF);
    write_file(path("hf") / "model.safetensors", bytes + header + std::string(data, '\0'));
    expect_refused(words);
  };
  fs::remove(path("hf") / "model.safetensors.index.json");
  write_file(path("hf") / "model.safetensors", std::string(8, '\xFF') + "{}");
  expect_refused({"model.safetensors", "header", "100000000"});
  const std::string one = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect("{" + one + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12, {"\"b\"", "overlaps"});
  expect("{" + one + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20, {"hole"});
  expect("{" + one + "," + one + "}", 8, {"\"a\"", "twice"});
  expect(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
         {"\"a\"", "overflow"});
  expect(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8, {"\"a\"", "Q4"});
  expect(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, {"\"a\"", "-2"});
  expect(R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, {"\"a\"", "2.5"});
  expect("{\"a\":" + std::string(50'000, '['), 0, {"not end"});
  // sound, but of nothing that the model has
  expect("{" + one + "}", 8, {"model.embed_tokens.weight", "missing"});
}

TEST_F(BadFolders, DamagedConfigs) {
  const std::string good = read_file(path("hf") / "config.json");
  const auto expect = [&](const std::string& key, const std::string& value, const std::string& word) {
    Json config = Json::parse(good);
    config[key] = "@";
    std::string text = config.dump();
    text.replace(text.find("\"@\""), 3, value);
    write_file(path("hf") / "config.json", text);
    expect_refused({"config.json", word});
  };
  expect("hidden_size", "-64", "hidden_size");
  expect("hidden_size", "64.0", "hidden_size");
  expect("num_hidden_layers", "1e9", "num_hidden_layers");
  expect("max_position_embeddings", "0", "max_position_embeddings");
  expect("max_position_embeddings", "-1", "max_position_embeddings");
  expect("rope_scaling", "{\"a\":" + std::string(60, '[') + std::string(60, ']') + "}", "nested");
  expect("vocab_size", "272, \"vocab_size\": 272", "twice");
  write_file(path("hf") / "config.json", good.substr(0, good.size() / 2));
  expect_refused({"config.json", "not valid JSON"});
}

/// Sizes that a model could have, with weights that are not there: memory must not be asked for first.
TEST_F(BadFolders, ModelsThatAreOnlySaidToBeHuge) {
  Json config = json(path("hf") / "config.json");
  config["vocab_size"] = 1 << 24;
  config["hidden_size"] = 1 << 20;
  write_file(path("hf") / "config.json", config.dump());
  expect_refused({"model.embed_tokens.weight", "[272, 64]", "[16777216, 1048576]"});
}

TEST_F(BadFolders, TensorsThatAreMissingMisshapedOrTooMany) {
  const fs::path shard = shard_of("model.norm.weight");
  rewrite(shard, [](TensorDeclaration t) -> std::optional<TensorDeclaration> {
    if (t.name == "model.norm.weight") t.shape = {32};
    return t;
  });
  expect_refused({"model.norm.weight", "[32]", "[64]"});
  rewrite(shard, [](TensorDeclaration t) -> std::optional<TensorDeclaration> {
    if (t.name == "model.norm.weight") t.dtype = DType::i16, t.shape = {64};
    return t;
  });
  expect_refused({"model.norm.weight", "I16"});
  rewrite(shard, [](TensorDeclaration t) -> std::optional<TensorDeclaration> {
    if (t.name == "model.norm.weight") t.name = "model.layers.3.input_layernorm.weight", t.dtype = DType::f32;
    return t;
  });
  index_["weight_map"]["model.layers.3.input_layernorm.weight"] = shard.filename().string();
  index_["weight_map"].erase("model.norm.weight");
  write_index();
  expect_refused({"model.norm.weight", "missing"});
}

TEST_F(BadFolders, TensorsThatTheModelDoesNotHave) {
  Json config = json(path("hf") / "config.json");
  config["num_hidden_layers"] = 2;
  write_file(path("hf") / "config.json", config.dump());
  expect_refused({"model.layers.2.", "has no tensor"});
}

TEST_F(BadFolders, ValuesThatAreNotFinite) {
  rewrite(
      shard_of("model.norm.weight"), [](const TensorDeclaration& t) { return std::optional(t); },
      std::numeric_limits<float>::quiet_NaN());
  expect_refused({"not finite", "model.", "(element "});
}

TEST_F(BadFolders, AHeadThatIsSaidToBeTiedAndIsNot) {
  const fs::path head = path("hf") / "model-head.safetensors";
  SafetensorsWriter writer(head, {{"lm_head.weight", DType::f32, {272, 64}}});
  const std::vector<float> zeros(272 * 64);
  writer.write("lm_head.weight", std::as_bytes(std::span(zeros)));
  writer.commit();
  index_["weight_map"]["lm_head.weight"] = head.filename().string();
  write_index();
  expect_refused({"tie_word_embeddings", "lm_head.weight"});
}

TEST_F(BadFolders, FoldersThatAreNoModels) {
  expect_bad_input([&] { import_checkpoint(one_thread(), path("nowhere"), path("back"), {}); },
                   {"nowhere", "config.json", "GGUF"});
  fs::create_directory(path("hf") / "sub");
  expect_bad_input([&] { import_checkpoint(one_thread(), path("hf") / "sub", path("back"), {}); },
                   {"config.json"});
  fs::remove(path("hf") / "model.safetensors.index.json");
  expect_refused({"safetensors"});
}

}  // namespace
}  // namespace tetrad::testing
