// SPDX-License-Identifier: Apache-2.0
// Export through the C interface: what the program writes of the same weights, and the codes of each layer by
// itself.

#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "interchange/checkpoints.h"
#include "oracle/oracle.h"
#include "tetrad/c/tetrad.h"
#include "tetrad/interchange/export_nvfp4.h"
#include "tetrad/interchange/import.h"

namespace tetrad::testing::c_export_test {
namespace {

namespace fs = std::filesystem;

constexpr float kAmax = 3.5f;

/// What a caller has in its memory, by the name that tetrad_export_tensor() was given.
struct Memory {
  std::map<std::string, std::vector<std::byte>> tensors;
  int calls_until_failure = -1;  //!< negative: never

  static int32_t read(void* user, const char* name, void* out, size_t bytes) {
    auto& memory = *static_cast<Memory*>(user);
    const std::vector<std::byte>& tensor = memory.tensors.at(name);
    if (memory.calls_until_failure-- == 0 || tensor.size() != bytes) return 1;
    std::memcpy(out, tensor.data(), bytes);
    return 0;
  }
};

class CExport : public ::testing::Test {
 protected:
  void SetUp() override {
    expect_ok(tetrad_cpu_context(nullptr, &context_));
    expect_ok(tetrad_precision_from_recipe("nvfp4", &nvfp4_));
  }
  void TearDown() override {
    tetrad_export_free(export_);
    tetrad_precision_free(nvfp4_);
    tetrad_context_free(context_);
  }
  static void expect_ok(tetrad_status status) { ASSERT_EQ(status, TETRAD_OK) << tetrad_last_error(); }
  static void expect_refused(tetrad_status status, const std::string& words) {
    EXPECT_EQ(status, TETRAD_BAD_INPUT);
    EXPECT_NE(std::string(tetrad_last_error()).find(words), std::string::npos) << tetrad_last_error();
  }
  fs::path path(const std::string& name) const { return folder_ / name; }

  /// A checkpoint, the same as a folder that transformers would have saved, and its tensors in memory.
  void make_model(const ModelConfig& model) {
    Config config = small_config(model);
    config.model.mamba.chunk = ModelConfig().mamba.chunk;  // theirs says nothing of ours
    config.precision.high_precision.first = 0;
    config.precision.high_precision.last = 0;
    make_checkpoint(path("run"), config);
    source_ = std::make_unique<CheckpointSource>(path("run"));
    export_hf(cpu_backend().threads(), *source_, path("theirs"), {.dtype = DType::f32});
    const SafetensorsFile file(path("theirs") / "model.safetensors");
    for (const TensorInfo& info : file.tensors()) {
      const auto bytes = file.bytes(info);
      memory_.tensors[info.name] = {bytes.begin(), bytes.end()};
      shapes_[info.name] = info.shape;
    }
    fs::remove(path("theirs") / "model.safetensors");
  }

  tetrad_export_options options(const char* format) {
    tetrad_export_options options = {};
    options.struct_size = sizeof options;
    theirs_ = path("theirs").string();
    options.folder = theirs_.c_str();
    options.format = format;
    options.read = Memory::read;
    options.user = &memory_;
    return options;
  }

  /// With all tensors, and all linear layers in NVFP4.
  void begin(const tetrad_export_options& options) {
    tetrad_export_free(export_);
    export_ = nullptr;
    expect_ok(tetrad_export_create(&options, &export_));
    for (const auto& [name, shape] : shapes_)
      expect_ok(tetrad_export_tensor(export_, name.c_str(), TETRAD_F32, shape.data(),
                                     static_cast<int32_t>(shape.size())));
    for (const MappedParameter& parameter : source_->parameters())
      if (!parameter.linear.empty())
        for (const Piece& piece : parameter.pieces)
          expect_ok(tetrad_export_layer(export_, module_of(piece.names.hf).c_str(), nvfp4_, kAmax));
  }
  tetrad_status write(const std::string& out) {
    return tetrad_export_write(export_, context_, path(out).c_str());
  }

  TemporaryFolder folder_{memory_folder()};
  std::string theirs_;
  Memory memory_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::unique_ptr<CheckpointSource> source_;
  tetrad_context* context_ = nullptr;
  tetrad_precision* nvfp4_ = nullptr;
  tetrad_export* export_ = nullptr;
};

class CExportFamilies : public CExport, public ::testing::WithParamInterface<Example> {};

TEST_P(CExportFamilies, ValuesAreThoseOfTheProgram) {
  make_model(GetParam().model);
  tetrad_export_options hf = options("hf");
  hf.dtype = "f32";
  begin(hf);
  expect_ok(write("out"));
  export_hf(cpu_backend().threads(), *source_, path("expected"), {.dtype = DType::f32});
  EXPECT_EQ(read_file(path("out") / "model.safetensors"), read_file(path("expected") / "model.safetensors"));
  EXPECT_EQ(tetrad_export_warning(export_, 0), nullptr);
}

TEST_P(CExportFamilies, JoinedScalesAreThoseOfTheProgram) {
  make_model(GetParam().model);
  InputAmax amax;
  for (const MappedParameter& parameter : source_->parameters())
    if (!parameter.linear.empty()) amax[parameter.linear] = kAmax;
  const Nvfp4Plan plan(source_->config().precision, source_->config().model, source_->parameters());
  for (const char* format : {"modelopt", "compressed-tensors"}) {
    tetrad_export_options joined = options(format);
    joined.joined_scales = 1;
    begin(joined);
    expect_ok(write(format));
    EXPECT_EQ(tetrad_export_warning(export_, 0), nullptr) << tetrad_export_warning(export_, 0);
    const std::string expected = std::string("expected-") + format;
    ExportOptions same;
    same.version = tetrad_version();
    export_nvfp4(
        *source_, path(expected), same,
        std::string_view(format) == "modelopt" ? ServingFormat::modelopt : ServingFormat::compressed_tensors,
        plan, amax, cpu_backend());
    for (const char* file : {"model.safetensors", "config.json", "generation_config.json"})
      EXPECT_EQ(read_file(path(format) / file), read_file(path(expected) / file)) << file;
  }
}

TEST_P(CExportFamilies, EachLayerHasTheCodesOfItsOwnForwardPass) {
  make_model(GetParam().model);
  begin(options("modelopt"));
  expect_ok(write("out"));
  const SafetensorsFile file(path("out") / "model.safetensors");
  const auto bytes = [&](const std::string& name) {
    const TensorInfo* info = file.find(name);
    EXPECT_NE(info, nullptr) << name;
    return info == nullptr ? std::span<const std::byte>() : file.bytes(*info);
  };
  bool has_joined = false;
  for (const MappedParameter& parameter : source_->parameters()) {
    if (parameter.linear.empty()) continue;
    has_joined |= parameter.pieces.size() > 1;
    for (const Piece& piece : parameter.pieces) {
      const std::vector<std::byte>& tensor = memory_.tensors.at(piece.names.hf);
      std::vector<float> values(tensor.size() / sizeof(float));
      std::memcpy(values.data(), tensor.data(), tensor.size());
      const oracle::Result result =
          oracle::quantize(values, piece.shape[0], piece.shape[1], {.block_rows = 16, .block_cols = 16});
      const auto codes = bytes(piece.names.hf);
      const auto scales = bytes(piece.names.hf + "_scale");
      ASSERT_EQ(codes.size(), result.packed.size());
      ASSERT_EQ(scales.size(), result.scale_bytes.size());
      EXPECT_EQ(std::memcmp(codes.data(), result.packed.data(), codes.size()), 0) << piece.names.hf;
      EXPECT_EQ(std::memcmp(scales.data(), result.scale_bytes.data(), scales.size()), 0) << piece.names.hf;
      float scale = 0;
      std::memcpy(&scale, bytes(piece.names.hf + "_scale_2").data(), sizeof scale);
      EXPECT_EQ(scale, result.amax / 2688.0f) << piece.names.hf;
    }
  }
  const char* warning = tetrad_export_warning(export_, 0);
  ASSERT_EQ(warning != nullptr, has_joined);
  if (!has_joined) return;
  EXPECT_NE(std::string(warning).find("scales of their own"), std::string::npos) << warning;
}

TEST_P(CExportFamilies, GgufIsReadBack) {
  if (GetParam().model.rope && GetParam().model.qk_norm && GetParam().model.rope->scaling) GTEST_SKIP();
  make_model(GetParam().model);
  begin(options("gguf"));
  expect_ok(write("model.gguf"));
  begin(options("modelopt"));
  expect_ok(write("modelopt"));
  // both hold the same values, so imports of both do
  import_checkpoint(cpu_backend().threads(), path("model.gguf"), path("from-gguf"), {"test", Overwrite::no});
  import_checkpoint(cpu_backend().threads(), path("modelopt"), path("from-modelopt"),
                    {"test", Overwrite::no});
  auto expected = read_weights(path("from-modelopt"));
  auto actual = read_weights(path("from-gguf"));
  for (const MappedParameter& parameter : source_->parameters()) {
    if (!parameter.linear.empty()) continue;
    expected.erase(parameter.name);
    actual.erase(parameter.name);  // vectors are F32 here and BF16 there
  }
  expect_same_weights(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(All, CExportFamilies, ::testing::ValuesIn(examples()),
                         [](const auto& example) { return example.param.name; });

TEST_F(CExport, WhatDoesNotFitIsRefused) {
  make_model(small_llama(false));
  expect_refused(tetrad_export_create(nullptr, &export_), "options");
  tetrad_export_options wrong = options("hf");
  wrong.read = nullptr;
  expect_refused(tetrad_export_create(&wrong, &export_), "read is NULL");
  wrong = options("hf");
  wrong.dtype = "f8";
  expect_refused(tetrad_export_create(&wrong, &export_), "\"f8\"");
  wrong = options("hf");
  wrong.struct_size = 1;
  expect_refused(tetrad_export_create(&wrong, &export_), "struct_size");

  begin(options("hf"));
  const std::int64_t shape[] = {-1};
  const std::string known = shapes_.begin()->first;
  const std::int64_t* same = shapes_.begin()->second.data();
  const auto rank = static_cast<int32_t>(shapes_.begin()->second.size());
  expect_refused(tetrad_export_tensor(export_, known.c_str(), TETRAD_F32, same, rank), "there twice");
  expect_refused(tetrad_export_tensor(export_, "new", TETRAD_E4M3, same, rank), "TETRAD_F32");
  expect_refused(tetrad_export_tensor(export_, "new", TETRAD_F32, shape, 1), "new");
  expect_refused(tetrad_export_tensor(export_, "new", TETRAD_F32, nullptr, 1), "shape is NULL");
  expect_refused(tetrad_export_tensor(export_, "new", TETRAD_F32, shape, 99), "99 dimensions");
  expect_refused(tetrad_export_layer(export_, "layer", nullptr, 0), "precision is NULL");
  expect_refused(tetrad_export_layer(export_, "model.layers.0.mlp.up_proj", nvfp4_, 0), "there twice");
  expect_refused(tetrad_export_write(export_, context_, ""), "out is empty");
  expect_refused(tetrad_export_write(export_, nullptr, "out"), "context is NULL");

  begin(options("onnx"));
  expect_refused(write("out"), "no format \"onnx\"");
  begin(options("hf"));
  expect_ok(tetrad_export_tensor(export_, "more", TETRAD_F32, nullptr, 0));
  expect_refused(write("out"), "\"more\"");
  begin(options("gguf"));
  expect_ok(tetrad_export_layer(export_, "lm_head", nvfp4_, kAmax));
  expect_refused(write("out"), "lm_head is quantized");
  const auto values = memory_.tensors.at("model.embed_tokens.weight");
  memory_.tensors.at("model.embed_tokens.weight")[3] = std::byte{0x7F};
  memory_.tensors.at("model.embed_tokens.weight")[2] = std::byte{0xFF};
  begin(options("hf"));
  expect_refused(write("out"), "not finite");
  memory_.tensors.at("model.embed_tokens.weight") = values;
  shapes_.erase("model.norm.weight");
  begin(options("hf"));
  expect_refused(write("out"), "model.norm.weight");
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"run", "theirs"}));
  EXPECT_EQ(tetrad_export_warning(nullptr, 0), nullptr);
}

TEST_F(CExport, InputScalesMustBeKnown) {
  make_model(small_llama(true));
  const tetrad_export_options modelopt = options("modelopt");
  for (const float amax :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    tetrad_export_free(export_);
    expect_ok(tetrad_export_create(&modelopt, &export_));
    for (const auto& [name, shape] : shapes_)
      expect_ok(tetrad_export_tensor(export_, name.c_str(), TETRAD_F32, shape.data(),
                                     static_cast<int32_t>(shape.size())));
    expect_ok(tetrad_export_layer(export_, "model.layers.1.mlp.down_proj", nvfp4_, amax));
    expect_refused(write("out"), "model.layers.1.mlp.down_proj");
  }
}

TEST_F(CExport, ACallerThatCannotReadEndsItAndNothingIsLeft) {
  make_model(small_hybrid(true));
  for (const char* format : {"hf", "modelopt", "gguf"})
    for (const int calls : {0, 1, 5}) {
      begin(options(format));
      memory_.calls_until_failure = calls;
      EXPECT_EQ(write("new/out"), TETRAD_FAILURE);
      EXPECT_NE(std::string(tetrad_last_error()).find("could not be read"), std::string::npos);
      EXPECT_EQ(folder_.files(), (std::vector<std::string>{"run", "theirs"})) << format << calls;
    }
  memory_.calls_until_failure = -1;
}

}  // namespace
}  // namespace tetrad::testing::c_export_test
