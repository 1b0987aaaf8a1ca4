// SPDX-License-Identifier: Apache-2.0
// NVFP4 for serving: fields of ModelOpt and compressed-tensors, and that the values are those of the forward
// pass, as a second reading of docs/numerics.md computes them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "interchange/checkpoints.h"
#include "oracle/oracle.h"
#include "support/errors.h"
#include "support/one_thread.h"
#include "tetrad/interchange/calibration.h"
#include "tetrad/interchange/export_nvfp4.h"
#include "tetrad/interchange/import.h"

namespace tetrad::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Some amax for every layer.
InputAmax invented_amax(const CheckpointSource& source) {
  InputAmax amax;
  for (const MappedParameter& parameter : source.parameters())
    if (!parameter.linear.empty()) amax[parameter.linear] = 0.5f + static_cast<float>(amax.size());
  return amax;
}

/// Those of Mamba-2 that exports never narrow.
bool stays_f32(const MappedParameter& parameter) {
  return parameter.name.ends_with(".a_log") || parameter.name.ends_with(".d") ||
         parameter.name.ends_with(".dt_bias");
}

oracle::Result reference(const CheckpointSource& source, const MappedParameter& parameter) {
  return oracle::quantize(source.values(parameter), parameter.rows(), parameter.columns(),
                          {.block_rows = 16, .block_cols = 16});
}

/// The modules of a matrix as all readers call them; `joined`: also where one reads q, k, v or gate, up as
/// one.
std::set<std::string> all_names(const MappedParameter& parameter, bool joined) {
  std::set<std::string> names;
  for (const Piece& piece : parameter.pieces) names.insert(module_of(piece.names.hf));
  if (parameter.copy) names.insert("lm_head");
  if (joined && parameter.pieces.size() > 1) {
    const std::string parent = module_of(*names.begin());
    names.insert(parent + (parameter.pieces.size() == 3 ? ".qkv_proj" : ".gate_up_proj"));
  }
  for (const std::string& name : std::set(names))
    if (name.starts_with("backbone.")) names.insert("model." + name.substr(9));
  return names;
}

class Serving : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_ / name; }
  Json json(const fs::path& file) const { return Json::parse(read_file(file)); }

  ExportSummary run_export(const CheckpointSource& source, const std::string& out, ServingFormat format) {
    const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
    return export_nvfp4(source, path(out), {}, format, plan, invented_amax(source), cpu_backend());
  }
  std::set<std::string> excluded(const std::string& out) const {
    return json(path(out) / "config.json")["quantization_config"]["ignore"].get<std::set<std::string>>();
  }

  static float scalar(const SafetensorsFile& file, const std::string& name,
                      const std::vector<std::int64_t>& shape) {
    const TensorInfo* info = file.find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return 0;
    EXPECT_EQ(info->dtype, DType::f32);
    EXPECT_EQ(info->shape, shape);
    float value = 0;
    std::memcpy(&value, file.bytes(*info).data(), sizeof(value));
    return value;
  }

  static std::vector<std::uint8_t> bytes(const SafetensorsFile& file, const std::string& name, DType dtype,
                                         const std::vector<std::int64_t>& shape) {
    const TensorInfo* info = file.find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return {};
    EXPECT_EQ(info->dtype, dtype);
    EXPECT_EQ(info->shape, shape);
    const auto data = file.bytes(*info);
    const auto* first = reinterpret_cast<const std::uint8_t*>(data.data());
    return {first, first + data.size()};
  }

  TemporaryFolder folder_{memory_folder()};
};

class ServingFamilies : public Serving, public ::testing::WithParamInterface<Example> {};

TEST_P(ServingFamilies, ModelOptHasTheCodesOfTheForwardPass) {
  const ModelConfig& model = GetParam().model;
  make_checkpoint(path("run"), small_config(model));
  const CheckpointSource source(path("run"));
  run_export(source, "out", ServingFormat::modelopt);
  const SafetensorsFile file(path("out") / "model.safetensors");
  const InputAmax amax = invented_amax(source);
  std::set<std::string> expected_tensors;
  std::set<std::string> expected_excluded;
  int quantized = 0;
  for (const MappedParameter& parameter : source.parameters()) {
    // the recipe of small_config() keeps the first and the last block
    const bool is_nvfp4 =
        !parameter.linear.empty() && parameter.block != 0 && parameter.block != model.blocks() - 1;
    if (!is_nvfp4 && parameter.shape.size() > 1) expected_excluded.merge(all_names(parameter, true));
    for (const Piece& piece : parameter.pieces) {
      if (!is_nvfp4) {
        expected_tensors.insert(piece.names.hf);
        continue;
      }
      ++quantized;
      const oracle::Result result = reference(source, parameter);
      const std::string module = module_of(piece.names.hf);
      for (const char* name : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"})
        expected_tensors.insert(module + name);
      const std::int64_t rows = piece.shape[0];
      const std::int64_t cols = piece.shape[1];
      const auto part = [&](const std::vector<std::uint8_t>& all, std::int64_t width) {
        const auto begin = all.begin() + piece.first_row * width;
        return std::vector<std::uint8_t>(begin, begin + rows * width);
      };
      EXPECT_EQ(bytes(file, module + ".weight", DType::u8, {rows, cols / 2}), part(result.packed, cols / 2));
      EXPECT_EQ(bytes(file, module + ".weight_scale", DType::f8_e4m3, {rows, cols / 16}),
                part(result.scale_bytes, cols / 16));
      // one for all that a server fuses
      EXPECT_EQ(scalar(file, module + ".weight_scale_2", {}), result.amax / 2688.0f);
      EXPECT_EQ(scalar(file, module + ".input_scale", {}), amax.at(parameter.linear) / 2688.0f);
    }
    if (parameter.writes_copy) expected_tensors.insert("lm_head.weight");
  }
  EXPECT_GT(quantized, 4);
  std::set<std::string> tensors;
  for (const TensorInfo& info : file.tensors()) tensors.insert(info.name);
  EXPECT_EQ(tensors, expected_tensors);

  const Json quant = json(path("out") / "hf_quant_config.json")["quantization"];
  EXPECT_EQ(quant["quant_algo"], "NVFP4");
  EXPECT_EQ(quant["group_size"], 16);
  EXPECT_TRUE(quant.contains("kv_cache_quant_algo") && quant["kv_cache_quant_algo"].is_null());
  EXPECT_EQ(quant["exclude_modules"].get<std::set<std::string>>(), expected_excluded);
  const Json config = json(path("out") / "config.json")["quantization_config"];
  EXPECT_EQ(config["quant_method"], "modelopt");
  EXPECT_EQ(config["quant_algo"], "NVFP4");
  EXPECT_EQ(config["group_size"], 16);
  EXPECT_EQ(config["ignore"], quant["exclude_modules"]);
  EXPECT_EQ(config["config_groups"]["group_0"]["targets"], Json({"Linear"}));
}

TEST_P(ServingFamilies, CompressedTensorsHasTheSameBytesAndTheReciprocals) {
  make_checkpoint(path("run"), small_config(GetParam().model));
  const CheckpointSource source(path("run"));
  run_export(source, "modelopt", ServingFormat::modelopt);
  run_export(source, "ct", ServingFormat::compressed_tensors);
  const SafetensorsFile modelopt(path("modelopt") / "model.safetensors");
  const SafetensorsFile ct(path("ct") / "model.safetensors");
  ASSERT_EQ(ct.tensors().size(), modelopt.tensors().size());
  int quantized = 0;
  for (const TensorInfo& info : modelopt.tensors()) {
    std::string name = info.name;
    const auto rename = [&](const std::string& from, const std::string& to) {
      if (name.ends_with(from)) name.replace(name.size() - from.size(), from.size(), to);
    };
    if (info.dtype == DType::u8) rename(".weight", ".weight_packed"), ++quantized;
    rename(".weight_scale_2", ".weight_global_scale");
    rename(".input_scale", ".input_global_scale");
    const TensorInfo* other = ct.find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(other->dtype, info.dtype);
    if (name.ends_with("_global_scale")) {
      const float multiplier = scalar(modelopt, info.name, {});
      EXPECT_NEAR(double{scalar(ct, name, {1})} * double{multiplier}, 1, 1.2e-7);
    } else {
      EXPECT_TRUE(std::ranges::equal(ct.bytes(*other), modelopt.bytes(info))) << name;
    }
  }
  EXPECT_GT(quantized, 4);
  const Json config = json(path("ct") / "config.json")["quantization_config"];
  EXPECT_EQ(config["quant_method"], "compressed-tensors");
  EXPECT_EQ(config["format"], "nvfp4-pack-quantized");
  EXPECT_EQ(config["quantization_status"], "compressed");
  const Json numbers = {{"num_bits", 4},     {"type", "float"},  {"strategy", "tensor_group"},
                        {"symmetric", true}, {"dynamic", false}, {"group_size", 16}};
  const Json& group = config["config_groups"]["group_0"];
  EXPECT_EQ(group["weights"], numbers);
  Json inputs = numbers;
  inputs["dynamic"] = "local";
  EXPECT_EQ(group["input_activations"], inputs);
  EXPECT_EQ(group["targets"], Json({"Linear"}));
  std::set<std::string> expected;
  const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
  for (const MappedParameter& parameter : source.parameters())
    if (parameter.shape.size() > 1 && plan.find(parameter) == nullptr)
      expected.merge(all_names(parameter, false));
  EXPECT_EQ(excluded("ct"), expected);
}

TEST_P(ServingFamilies, BothAreReadBack) {
  make_checkpoint(path("run"), small_config(GetParam().model));
  const CheckpointSource source(path("run"));
  for (const ServingFormat format : {ServingFormat::modelopt, ServingFormat::compressed_tensors}) {
    const std::string name = format == ServingFormat::modelopt ? "modelopt" : "ct";
    run_export(source, name, format);
    import_checkpoint(one_thread(), path(name), path(name + "-back"), {"test", Overwrite::no});
    const auto weights = read_weights(path(name + "-back"));
    const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
    for (const MappedParameter& parameter : source.parameters()) {
      const std::vector<float>& actual = weights.at(parameter.name);
      const std::vector<float> exact = source.values(parameter);
      const bool is_nvfp4 = plan.find(parameter) != nullptr;
      const oracle::Result result = is_nvfp4 ? reference(source, parameter) : oracle::Result{};
      for (std::size_t i = 0; i < actual.size(); ++i) {
        if (is_nvfp4) {
          // the tensor scale is 1 / (2688 / amax) in one place and amax / 2688 in the other
          ASSERT_NEAR(actual[i], result.decoded[i], 2.5e-7 * std::abs(double{result.decoded[i]}))
              << parameter.name << " " << i;
        } else {
          ASSERT_EQ(actual[i], stays_f32(parameter) ? exact[i] : oracle::to_bf16(exact[i])) << parameter.name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ServingFamilies, ::testing::ValuesIn(examples()),
                         [](const auto& test) { return test.param.name; });

TEST_F(Serving, NoScaleByteIsZeroOrNaN) {
  // One block of huge values makes the scales of all others underflow; one is zero altogether.
  MappedParameter parameter;
  parameter.name = "w";
  parameter.shape = {32, 64};
  std::vector<float> values(32 * 64, 1e-6f);
  for (std::size_t i = 0; i < 16; ++i) values[i] = i % 2 == 0 ? 3e38f : -3e38f;
  for (std::size_t row = 16; row < 32; ++row)
    for (std::size_t col = 0; col < 16; ++col) values[row * 64 + col] = 0;
  values[40] = -1e-6f;
  const Nvfp4Weight weight = quantize_weight(cpu_backend(), parameter, {.block = {16, 16}}, values);
  for (const std::byte scale : weight.scales) {
    EXPECT_GE(std::to_integer<int>(scale), 0x01);
    EXPECT_LE(std::to_integer<int>(scale), 0x7E);
  }
  // What decoded to zero still does, in spite of the smallest scale.
  const auto code = [&](std::size_t i) {
    return std::to_integer<int>(weight.codes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 0x7;
  };
  for (std::size_t i = 16; i < 64; ++i) EXPECT_EQ(code(i), 0) << i;
  EXPECT_EQ(code(0), 7);
  const std::vector<float> zeros(32 * 64);
  const Nvfp4Weight nothing = quantize_weight(cpu_backend(), parameter, {.block = {16, 16}}, zeros);
  EXPECT_EQ(nothing.scale.encode, 1.0f);
  EXPECT_EQ(nothing.scale.decode, 1.0f);
  EXPECT_EQ(std::to_integer<int>(nothing.scales[0]), 1);
}

TEST_F(Serving, NoScaleByteIsZeroOrNaNWhateverTheWeights) {
  MappedParameter parameter;
  parameter.name = "w";
  parameter.shape = {16, 64};
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    // every exponent that a finite f32 has, in tensors of narrow and wide range
    const std::uint64_t lowest = random() % 254;
    const std::uint64_t span = 1 + random() % (255 - lowest);
    std::vector<float> values(16 * 64);
    for (float& value : values) {
      const auto exponent = static_cast<std::uint32_t>(lowest + random() % span);
      value = std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807FFFFFU) | exponent << 23);
    }
    for (const BlockShape block : {BlockShape{1, 16}, BlockShape{16, 16}})
      for (const Scaling scaling : {Scaling::standard, Scaling::four_six, Scaling::search}) {
        const Nvfp4Weight weight =
            quantize_weight(cpu_backend(), parameter, {.block = block, .scaling = scaling}, values);
        for (const std::byte scale : weight.scales) {
          ASSERT_GE(std::to_integer<int>(scale), 0x01) << round;
          ASSERT_LE(std::to_integer<int>(scale), 0x7E) << round;
        }
        ASSERT_TRUE(std::isfinite(weight.scale.encode) && weight.scale.encode > 0) << round;
        ASSERT_TRUE(std::isfinite(weight.scale.decode) && weight.scale.decode > 0) << round;
      }
  }
}

TEST_F(Serving, OtherBlocksOfTheRecipeAreServedToo) {
  Config config = small_config(small_llama(false));
  config.precision.weights_2d = false;
  config.precision.scale.forward = "search";
  make_checkpoint(path("run"), config);
  const CheckpointSource source(path("run"));
  run_export(source, "out", ServingFormat::modelopt);
  const SafetensorsFile file(path("out") / "model.safetensors");
  const MappedParameter& parameter =
      *std::ranges::find(source.parameters(), "blocks.2.qkv.weight", &MappedParameter::name);
  const oracle::Result result =
      oracle::quantize(source.values(parameter), parameter.rows(), parameter.columns(),
                       {.block_rows = 1, .block_cols = 16, .scaling = oracle::Scaling::search});
  const std::string module = "model.layers.1.self_attn.k_proj";
  const auto rows = [](const std::vector<std::uint8_t>& all, std::int64_t width) {
    return std::vector<std::uint8_t>(all.begin() + 128 * width,
                                     all.begin() + 192 * width);  // behind 4 heads of 32
  };
  EXPECT_EQ(bytes(file, module + ".weight", DType::u8, {64, 32}), rows(result.packed, 32));
  EXPECT_EQ(bytes(file, module + ".weight_scale", DType::f8_e4m3, {64, 4}), rows(result.scale_bytes, 4));
  EXPECT_EQ(scalar(file, module + ".weight_scale_2", {}), result.amax / 1536.0f);
}

/// By the names that transformers 5 and TensorRT-LLM, old and new, have for the modules. The recipe of
/// small_config() keeps the first and the last block.
TEST_F(Serving, ReadersFindTheirModulesInTheLists) {
  using Names = std::vector<std::string>;
  const auto expect = [&](const ModelConfig& model, ServingFormat format, const Names& kept,
                          const Names& nvfp4) {
    const std::string out = model.name + (format == ServingFormat::modelopt ? "-modelopt" : "-ct");
    make_checkpoint(path(out + "-run"), small_config(model));
    run_export(CheckpointSource(path(out + "-run")), out, format);
    for (const std::string& name : kept) EXPECT_TRUE(excluded(out).contains(name)) << out << ": " << name;
    for (const std::string& name : nvfp4) EXPECT_FALSE(excluded(out).contains(name)) << out << ": " << name;
  };
  expect(
      small_llama(false), ServingFormat::modelopt,
      {"lm_head", "model.layers.0.self_attn.qkv_proj", "model.layers.0.self_attn.k_proj",
       "model.layers.0.self_attn.o_proj", "model.layers.2.mlp.gate_up_proj", "model.layers.2.mlp.down_proj"},
      {"model.layers.0.mlp.gate_up_proj", "model.layers.1.self_attn.qkv_proj",
       "model.layers.2.self_attn.o_proj"});
  const Names kept = {"lm_head", "model.layers.0.mixer.in_proj", "model.layers.0.mixer.out_proj",
                      "model.layers.4.mixer.up_proj", "backbone.layers.4.mixer.down_proj"};
  const Names nvfp4 = {"model.layers.1.mixer.up_proj", "model.layers.2.mixer.in_proj",
                       "model.layers.3.mixer.qkv_proj", "backbone.layers.3.mixer.q_proj"};
  for (const ServingFormat format : {ServingFormat::modelopt, ServingFormat::compressed_tensors})
    expect(small_hybrid(false), format, kept, nvfp4);
}

/// Servers make plain NVFP4 of inputs, whatever training did.
TEST_F(Serving, InputsThatServersQuantizeOtherwiseAreWarnedAbout) {
  Config config = small_config(small_llama(true));
  config.precision.scale.forward = "4/6";
  make_checkpoint(path("run"), config);
  const CheckpointSource source(path("run"));
  for (const ServingFormat format : {ServingFormat::modelopt, ServingFormat::compressed_tensors}) {
    const std::string name = format == ServingFormat::modelopt ? "modelopt" : "ct";
    const ExportSummary summary = run_export(source, name, format);
    ASSERT_EQ(summary.warnings.size(), 1U);
    EXPECT_NE(summary.warnings[0].find("4/6"), std::string::npos) << summary.warnings[0];
    EXPECT_EQ(json(path(name) / "tetrad_export.json")["warnings"], Json(summary.warnings));
    const SafetensorsFile file(path(name) / "model.safetensors");
    const std::string scale = "model.layers.1.self_attn.q_proj" + std::string(names_of(format).input_scale);
    const float amax = invented_amax(source).at("blocks.2.qkv");
    EXPECT_FLOAT_EQ(
        scalar(file, scale,
               names_of(format).divides ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{}),
        names_of(format).divides ? 2688.0f / amax : amax / 2688.0f);
  }
  const auto only_in_training = [&](const PrecisionConfig& precision) {
    return Nvfp4Plan(precision, config.model, source.parameters()).only_in_training();
  };
  using What = std::set<std::string>;
  EXPECT_EQ(only_in_training(with_precision(config.precision, "nvfp4")), What{});
  config.precision.operands["fprop.x"].scale = "nearest";  // weights only
  EXPECT_EQ(only_in_training(config.precision), What{});
  config.precision.operands.clear();
  config.precision.scale.forward = "search";
  EXPECT_EQ(only_in_training(config.precision), What{"scale search"});
  config.precision.scale = {};
  EXPECT_EQ(only_in_training(config.precision), What{});
  config.precision.sr = std::vector<std::string>{"activations"};
  EXPECT_EQ(only_in_training(config.precision), What{"stochastic rounding"});

  make_checkpoint(path("plain"), small_config(small_llama(true)));
  EXPECT_TRUE(run_export(CheckpointSource(path("plain")), "out", ServingFormat::modelopt).warnings.empty());
  EXPECT_FALSE(json(path("out") / "tetrad_export.json").contains("warnings"));
}

TEST_F(Serving, LayersThatStayInFp8AreLeftLikeThoseInBf16) {
  Config config = small_config(small_llama(true));
  config.precision.high_precision.fp8 = {"blocks.1.*"};
  const auto parameters = tensor_map(config.model, Family::llama);
  const Nvfp4Plan plan(config.precision, config.model, parameters);
  EXPECT_EQ(plan.size(), 6U);  // two layers in each of three blocks
  for (const MappedParameter& parameter : parameters)
    if (parameter.block <= 1) {
      EXPECT_EQ(plan.find(parameter), nullptr) << parameter.name;
    }
}

TEST_F(Serving, CalibrationSeesWhatTheLayersAreGiven) {
  make_checkpoint(path("run"), small_config(small_llama(true)), ByteTokenizer().hash());
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 23);
  write_file(path("text.txt"), text);
  const auto run_with = [&](std::int64_t sequences) {
    LoadedModel model(path("run"), {}, cpu_backend());
    return calibrate(model, {path("text.txt").string(), sequences});
  };
  const InputAmax few = run_with(1);
  const InputAmax many = run_with(100);
  // blocks 1 to 4 of 6, two linear layers each
  EXPECT_EQ(few.size(), 8U);
  EXPECT_EQ(many.size(), 8U);
  for (const auto& [layer, amax] : few) {
    EXPECT_GT(amax, 0.0f) << layer;
    EXPECT_LE(amax, many.at(layer)) << layer;
  }
  // A norm's output: its largest element is at most sqrt(hidden) times its weight.
  EXPECT_LT(many.at("blocks.2.qkv"), 8.0f * 1.2f);
  expect_bad_input(
      [&] {
        LoadedModel model(path("run"), {}, cpu_backend());
        calibrate(model, {});
      },
      {"--calibrate"});
  write_file(path("short.txt"), "abc");
  expect_bad_input(
      [&] {
        LoadedModel model(path("run"), {}, cpu_backend());
        calibrate(model, {path("short.txt").string(), 1});
      },
      {"short.txt", "3 tokens"});
}

TEST_F(Serving, WhatCannotBeServedIsRefused) {
  Config config = small_config(small_llama(true));
  const auto parameters = tensor_map(config.model, Family::llama);
  const auto plan = [&] { return Nvfp4Plan(config.precision, config.model, parameters); };
  config.precision.sr = std::vector<std::string>{"weights"};
  expect_bad_input(plan, {"blocks.1.up", "stochastically", "--precision nvfp4"});
  // what the message advises must help
  EXPECT_EQ(Nvfp4Plan(with_precision(config.precision, "nvfp4"), config.model, parameters).size(), 8U);
  config.precision.sr.reset();
  config.precision.rht.gemms = std::vector<std::string>{"fprop"};
  expect_bad_input(plan, {"transformed"});
  config.precision.rht.gemms.reset();
  config.precision.operands["fprop.x"].format = "bf16";
  expect_bad_input(plan, {"inputs"});
  config.precision.operands.clear();
  config.precision.recipe = "mxfp4";
  expect_bad_input(plan, {"mxfp4"});
  config.precision.recipe = "bf16";
  EXPECT_EQ(plan().size(), 0U);

  make_checkpoint(path("run"), config);
  const CheckpointSource source(path("run"));
  expect_bad_input([&] { run_export(source, "out", ServingFormat::modelopt); }, {"no layer", "--to hf"});
  EXPECT_FALSE(fs::exists(path("out")));
}

TEST_F(Serving, DamagedScalesAreRefusedOnImport) {
  make_checkpoint(path("run"), small_config(small_llama(true)));
  const std::string module = "model.layers.1.self_attn.q_proj";
  for (const ServingFormat format : {ServingFormat::modelopt, ServingFormat::compressed_tensors}) {
    const std::string name = format == ServingFormat::modelopt ? "modelopt" : "ct";
    run_export(CheckpointSource(path("run")), name, format);
    const fs::path file = path(name) / "model.safetensors";
    const std::string good = read_file(file);
    const auto damage = [&](const std::string& tensor, const std::string& bytes) {
      std::string bad = good;
      const SafetensorsFile opened(file);
      const std::size_t data = good.size() - opened.tensors().back().end;
      bad.replace(data + opened.find(tensor)->begin, bytes.size(), bytes);
      write_file(file, bad);
      expect_bad_input([&] { import_checkpoint(one_thread(), path(name), path("back"), {}); },
                       {module, name});
      write_file(file, good);
    };
    const std::string scale = module + std::string(names_of(format).weight_scale);
    damage(module + ".weight_scale", "\x7F");
    damage(module + ".weight_scale", "\xFF");
    damage(scale, std::string(4, '\0'));                // zero
    damage(scale, std::string("\x00\x00\x80\xBF", 4));  // -1
    damage(scale, std::string("\x00\x00\xC0\x7F", 4));  // NaN
    damage(scale, std::string("\x00\x00\x80\x7F", 4));  // infinity
    EXPECT_EQ(folder_.files(),
              (format == ServingFormat::modelopt ? std::vector<std::string>{"modelopt", "run"}
                                                 : std::vector<std::string>{"ct", "modelopt", "run"}));
  }
}

TEST_F(Serving, IncompleteLayersAreRefusedOnImport) {
  make_checkpoint(path("run"), small_config(small_llama(true)));
  run_export(CheckpointSource(path("run")), "out", ServingFormat::modelopt);
  const std::string layer = "model.layers.1.self_attn.q_proj";
  const auto rewritten = [&](const std::function<bool(TensorDeclaration&)>& keep) {
    const SafetensorsFile good(path("out") / "model.safetensors");
    fs::remove_all(path("bad"));
    fs::create_directory(path("bad"));
    fs::copy_file(path("out") / "config.json", path("bad") / "config.json");
    std::vector<TensorDeclaration> tensors;
    for (const TensorInfo& info : good.tensors()) {
      TensorDeclaration tensor{info.name, info.dtype, info.shape};
      if (keep(tensor)) tensors.push_back(tensor);
    }
    SafetensorsWriter writer(path("bad") / "model.safetensors", tensors);
    for (const TensorDeclaration& tensor : tensors)
      writer.write(tensor.name,
                   std::vector<std::byte>(checked_tensor_bytes("test", tensor.dtype, tensor.shape)));
    writer.commit();
  };
  const auto expect_refused = [&](const std::vector<std::string>& words) {
    expect_bad_input([&] { import_checkpoint(one_thread(), path("bad"), path("back"), {}); }, words);
  };
  rewritten([&](const auto& tensor) { return tensor.name != layer + ".weight_scale"; });
  expect_refused({layer + ".weight_scale", "missing"});
  rewritten([&](const auto& tensor) { return tensor.name != layer + ".weight_scale_2"; });
  expect_refused({layer + ".weight_scale_2", "missing"});
  rewritten([&](auto& tensor) {
    if (tensor.name == layer + ".weight_scale") tensor.shape = {128, 2};
    return true;
  });
  expect_refused({layer + ".weight_scale", "[128, 2]", "[128, 4]"});
  rewritten([&](auto& tensor) {
    if (tensor.name == layer + ".weight_scale") tensor.dtype = DType::u8;
    return true;
  });
  expect_refused({layer + ".weight_scale", "U8", "F8_E4M3"});
  // weights in another program's 8 bits
  rewritten([&](auto& tensor) {
    if (tensor.name == layer + ".weight") tensor.dtype = DType::f8_e4m3, tensor.shape = {128, 64};
    return true;
  });
  expect_refused({layer + ".weight", "F8_E4M3", "NVFP4"});
}

}  // namespace
}  // namespace tetrad::testing
