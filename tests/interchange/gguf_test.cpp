// SPDX-License-Identifier: Apache-2.0
// GGUF: the bytes, taken apart by a reader that shares nothing with ours, and our reader on good and bad
// files.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

#include "interchange/checkpoints.h"
#include "oracle/oracle.h"
#include "support/errors.h"
#include "support/one_thread.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/interchange/export_gguf.h"
#include "tetrad/interchange/gguf_file.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/interchange/import.h"
#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::testing {
namespace {

namespace fs = std::filesystem;

/// A plain reading of the format's description: everything is kept as text or as numbers.
class PlainGguf {
 public:
  struct Tensor {
    std::vector<std::uint64_t> extents;  // the fastest first
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
  };

  explicit PlainGguf(std::string bytes) : bytes_(std::move(bytes)) {
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(number<std::uint32_t>(), 3U);
    const auto tensor_count = number<std::uint64_t>();
    const auto entry_count = number<std::uint64_t>();
    for (std::uint64_t i = 0; i < entry_count; ++i) {
      const std::string key = text();
      read_value(key, number<std::uint32_t>());
    }
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      Tensor& tensor = tensors[text()];
      tensor.extents.resize(number<std::uint32_t>());
      for (std::uint64_t& extent : tensor.extents) extent = number<std::uint64_t>();
      tensor.type = number<std::uint32_t>();
      tensor.offset = number<std::uint64_t>();
      EXPECT_EQ(tensor.offset % 32, 0U);
    }
    data_ = (at_ + 31) / 32 * 32;
    EXPECT_EQ(bytes_.size() % 32, 0U);
  }

  std::vector<float> values(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    std::uint64_t count = 1;
    for (const std::uint64_t extent : tensor.extents) count *= extent;
    const auto* in = reinterpret_cast<const std::uint8_t*>(bytes_.data()) + data_ + tensor.offset;
    std::vector<float> out(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (tensor.type == 0) {
        std::memcpy(&out[i], in + 4 * i, 4);
      } else if (tensor.type == 30) {
        const std::uint32_t word = (std::uint32_t{in[2 * i + 1]} << 24) | (std::uint32_t{in[2 * i]} << 16);
        out[i] = std::bit_cast<float>(word);
      } else {
        EXPECT_EQ(tensor.type, 40U);
        const std::uint8_t* block = in + i / 64 * 36;
        const std::uint64_t run = i % 64 / 16;
        const std::uint64_t within = i % 16;
        const int pair = block[4 + 8 * run + within % 8];
        const int code = within < 8 ? pair & 0xF : pair >> 4;
        out[i] = static_cast<float>(oracle::decode_e2m1(code) * oracle::decode_e4m3(block[run]));
      }
    }
    return out;
  }

  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<std::string>> text_lists;
  std::map<std::string, std::vector<double>> number_lists;
  std::map<std::string, Tensor> tensors;

 private:
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = number<std::uint64_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void read_value(const std::string& key, std::uint32_t kind) {
    if (kind == 4) numbers[key] = number<std::uint32_t>();
    if (kind == 6) numbers[key] = double{number<float>()};
    if (kind == 7) numbers[key] = number<std::uint8_t>();
    if (kind == 8) texts[key] = text();
    if (kind != 9) {
      EXPECT_TRUE(kind == 4 || kind == 6 || kind == 7 || kind == 8) << key << " has kind " << kind;
      return;
    }
    const auto of = number<std::uint32_t>();
    const auto count = number<std::uint64_t>();
    EXPECT_TRUE(of == 5 || of == 8) << key;
    for (std::uint64_t i = 0; i < count; ++i)
      if (of == 8)
        text_lists[key].push_back(text());
      else
        number_lists[key].push_back(number<std::int32_t>());
  }

  std::string bytes_;
  std::size_t at_ = 0;
  std::size_t data_ = 0;
};

class Gguf : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_ / name; }

  void run_export(const CheckpointSource& source, const std::string& out) {
    const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
    export_gguf(source, path(out), {}, plan, cpu_backend());
  }

  TemporaryFolder folder_{memory_folder()};
};

class GgufFamilies : public Gguf, public ::testing::WithParamInterface<Example> {};

/// Row of ours for a row of a query or key head of 32, written down from the definition of both rotations:
/// the pair (i, i + 16) here is the pair (2i, 2i + 1) there.
std::size_t our_row(std::size_t row) {
  const std::size_t pair = row % 32 / 2;
  return row / 32 * 32 + (row % 2 == 0 ? pair : pair + 16);
}

TEST_P(GgufFamilies, HoldsTheValuesOfTheForwardPass) {
  const ModelConfig& model = GetParam().model;
  make_checkpoint(path("run"), small_config(model));
  const CheckpointSource source(path("run"));
  run_export(source, "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  const Nvfp4Plan plan(source.config().precision, model, source.parameters());
  const bool is_llama = source.family() == Family::llama;
  int packed = 0;
  std::size_t tensors = is_llama ? 1 : 0;  // rope_freqs
  for (const MappedParameter& parameter : source.parameters()) {
    const std::vector<float> exact = source.values(parameter);
    const bool is_nvfp4 = plan.find(parameter) != nullptr;
    const oracle::Result result = is_nvfp4 ? oracle::quantize(exact, parameter.rows(), parameter.columns(),
                                                              {.block_rows = 16, .block_cols = 16})
                                           : oracle::Result{};
    for (const Piece& piece : parameter.pieces) {
      const std::string& name = piece.names.gguf;
      ASSERT_TRUE(file.tensors.contains(name)) << name;
      ++tensors;
      const std::vector<float> actual = file.values(name);
      ASSERT_EQ(actual.size(), static_cast<std::size_t>(element_count(piece.shape))) << name;
      float scale = 1;
      const std::uint32_t type = file.tensors.at(name).type;
      if (type == 40) {
        ++packed;
        ++tensors;
        scale = file.values(name.substr(0, name.rfind('.')) + ".scale").at(0);
        EXPECT_EQ(scale, result.amax / 2688.0f);
      }
      const auto cols = static_cast<std::size_t>(parameter.columns());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const std::size_t row = is_llama && piece.role != Role::other ? our_row(i / cols) : i / cols;
        const std::size_t at = static_cast<std::size_t>(piece.first_row) * cols + row * cols + i % cols;
        float expected = exact[at];
        if (is_nvfp4) expected = result.decoded[at];
        if (type == 30) expected = oracle::to_bf16(expected);
        if (parameter.name.ends_with("a_log")) expected = -std::exp(expected);
        ASSERT_NEAR(actual[i] * scale, expected, 3e-7 * std::abs(expected)) << name << " " << i;
      }
    }
  }
  EXPECT_EQ(file.tensors.size(), tensors);
  const bool is_hybrid = source.family() == Family::nemotron_h;
  EXPECT_GT(packed, is_hybrid ? 3 : 8);
  EXPECT_EQ(file.texts.at("general.architecture"), is_llama ? "llama" : is_hybrid ? "nemotron_h" : "qwen3");
  EXPECT_EQ(file.numbers.at("general.file_type"), 39);
}

TEST_P(GgufFamilies, IsReadBack) {
  for (const char* recipe : {"nvfp4", "bf16"}) {
    Config config = small_config(GetParam().model);
    config.precision.recipe = recipe;
    const std::string name = recipe;
    make_checkpoint(path(name), config);
    const CheckpointSource source(path(name));
    run_export(source, name + ".gguf");
    import_checkpoint(one_thread(), path(name + ".gguf"), path(name + "-back"), {"test", Overwrite::no});
    const CheckpointSource back(path(name + "-back"));
    ModelConfig model = config.model;
    model.mamba.chunk = back.config().model.mamba.chunk;
    if (model.pattern.find('M') == std::string::npos) model.mamba = back.config().model.mamba;
    model.text.context = source.context();
    EXPECT_EQ(back.config().model, model);
    const Nvfp4Plan plan(config.precision, config.model, source.parameters());
    for (const MappedParameter& parameter : source.parameters()) {
      std::vector<float> expected = source.values(parameter);
      const bool is_nvfp4 = plan.find(parameter) != nullptr;
      if (is_nvfp4)
        expected = oracle::quantize(expected, parameter.rows(), parameter.columns(),
                                    {.block_rows = 16, .block_cols = 16})
                       .decoded;
      const bool is_bf16 =
          !is_nvfp4 && parameter.shape.size() > 1 && !parameter.name.ends_with("conv.weight");
      const std::vector<float> actual = back.values(parameter);
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const float wanted = is_bf16 ? oracle::to_bf16(expected[i]) : expected[i];
        // A goes through exp and log
        const double slack = parameter.name.ends_with("a_log") ? 2e-7 : 2.5e-7 * std::abs(double{wanted});
        ASSERT_NEAR(actual[i], wanted, slack) << parameter.name << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamilies, ::testing::ValuesIn(examples()),
                         [](const auto& test) { return test.param.name; });

TEST_F(Gguf, MetadataIsWhatLlamaCppReads) {
  make_checkpoint(path("run"), small_config(small_llama(true)), ByteTokenizer().hash());
  run_export(CheckpointSource(path("run")), "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  const std::map<std::string, double> expected = {
      {"llama.block_count", 3},           {"llama.context_length", 512},
      {"llama.embedding_length", 64},     {"llama.feed_forward_length", 192},
      {"llama.attention.head_count", 4},  {"llama.attention.head_count_kv", 2},
      {"llama.attention.key_length", 32}, {"llama.attention.value_length", 32},
      {"llama.rope.dimension_count", 32}, {"llama.rope.freq_base", 10000},
      {"llama.vocab_size", 272},          {"tokenizer.ggml.eos_token_id", 0}};
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(file.numbers.contains(key)) << key;
    EXPECT_EQ(file.numbers.at(key), value) << key;
  }
  EXPECT_EQ(file.tensors.at("blk.1.ffn_down.weight").extents, (std::vector<std::uint64_t>{192, 64}));
  EXPECT_FALSE(file.tensors.contains("output.weight"));
  EXPECT_EQ(file.texts.at("tokenizer.ggml.model"), "gpt2");
  // llama.cpp takes the size of the vocabulary from here, and wants no token twice
  const std::vector<std::string>& tokens = file.text_lists.at("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.size(), 272U);
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 272U);
  EXPECT_EQ(tokens['a'], "a");
  const std::vector<double>& types = file.number_lists.at("tokenizer.ggml.token_type");
  EXPECT_EQ(types.size(), 272U);
  EXPECT_EQ(types[255], 1);
  EXPECT_EQ(types[256], 5);
  // High frequencies stay, low ones are divided by 8.
  const std::vector<float> factors = file.values("rope_freqs.weight");
  ASSERT_EQ(factors.size(), 16U);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_FLOAT_EQ(factors.back(), 8.0f);
}

/// llama.cpp rotates its heads as we do, and without factors.
TEST_F(Gguf, AModelWithNormsOfHeadsIsAQwen3) {
  ModelConfig model = small_qwen3(false);
  make_checkpoint(path("run"), small_config(model));
  run_export(CheckpointSource(path("run")), "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  EXPECT_EQ(file.numbers.at("qwen3.block_count"), 3);
  EXPECT_EQ(file.numbers.at("qwen3.attention.key_length"), 32);
  EXPECT_EQ(file.numbers.at("qwen3.attention.head_count_kv"), 2);
  for (const char* name : {"blk.2.attn_q_norm.weight", "blk.2.attn_k_norm.weight"})
    EXPECT_EQ(file.tensors.at(name).extents, (std::vector<std::uint64_t>{32})) << name;

  model.rope->scaling = RopeScaling{8, 1, 4, 64};
  make_checkpoint(path("scaled"), small_config(model));
  const CheckpointSource scaled(path("scaled"));
  expect_bad_input([&] { run_export(scaled, "scaled.gguf"); }, {"model.rope.scaling", "--to hf"});
  EXPECT_FALSE(fs::exists(path("scaled.gguf")));
}

TEST_F(Gguf, MetadataOfAHybridIsWhatLlamaCppReads) {
  make_checkpoint(path("run"), small_config(small_hybrid(false)));
  run_export(CheckpointSource(path("run")), "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  const std::map<std::string, double> expected = {{"nemotron_h.block_count", 5},
                                                  {"nemotron_h.context_length", 32},
                                                  {"nemotron_h.embedding_length", 64},
                                                  {"nemotron_h.vocab_size", 272},
                                                  {"nemotron_h.attention.head_count", 4},
                                                  {"nemotron_h.attention.key_length", 16},
                                                  {"nemotron_h.attention.value_length", 16},
                                                  {"nemotron_h.ssm.conv_kernel", 4},
                                                  {"nemotron_h.ssm.inner_size", 128},
                                                  {"nemotron_h.ssm.state_size", 18},
                                                  {"nemotron_h.ssm.time_step_rank", 8},
                                                  {"nemotron_h.ssm.group_count", 2},
                                                  {"nemotron_h.attention.layer_norm_rms_epsilon", 1e-5f},
                                                  {"nemotron_h.attention.layer_norm_epsilon", 1e-5f}};
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(file.numbers.contains(key)) << key;
    EXPECT_EQ(file.numbers.at(key), value) << key;
  }
  EXPECT_EQ(file.number_lists.at("nemotron_h.feed_forward_length"), (std::vector<double>{0, 144, 0, 0, 144}));
  EXPECT_EQ(file.number_lists.at("nemotron_h.attention.head_count_kv"), (std::vector<double>{0, 0, 0, 1, 0}));
  EXPECT_EQ(file.texts.at("tokenizer.ggml.model"), "no_vocab");
  using Extents = std::vector<std::uint64_t>;
  const std::map<std::string, Extents> extents = {{"blk.2.attn_norm.weight", {64}},
                                                  {"blk.2.ssm_in.weight", {64, 336}},
                                                  {"blk.2.ssm_conv1d.weight", {4, 200}},
                                                  {"blk.2.ssm_conv1d.bias", {200}},
                                                  {"blk.2.ssm_a", {1, 8}},
                                                  {"blk.2.ssm_d", {1, 8}},
                                                  {"blk.2.ssm_dt.bias", {8}},
                                                  {"blk.2.ssm_norm.weight", {64, 2}},
                                                  {"blk.2.ssm_out.weight", {128, 64}},
                                                  {"blk.3.attn_k.weight", {64, 16}},
                                                  {"blk.3.attn_output.weight", {64, 64}},
                                                  {"blk.4.ffn_up.weight", {64, 144}},
                                                  {"blk.4.ffn_down.weight", {144, 64}},
                                                  {"token_embd.weight", {64, 272}},
                                                  {"output.weight", {64, 272}},
                                                  {"output_norm.weight", {64}}};
  for (const auto& [name, wanted] : extents) {
    ASSERT_TRUE(file.tensors.contains(name)) << name;
    EXPECT_EQ(file.tensors.at(name).extents, wanted) << name;
  }
}

TEST_F(Gguf, OnlyTokenizersThatLlamaCppAppliesAlikeAreWritten) {
  const auto metadata = [](const BpeDefinition& definition) {
    std::map<std::string, GgufValue> values;
    const BpeTokenizer tokenizer(definition);
    for (auto& [key, value] : gguf_tokenizer(&tokenizer, 300, {{}, tokenizer.end_of_document()}))
      values[key.substr(15)] = value;
    return values;
  };
  BpeDefinition definition = small_bpe();
  EXPECT_EQ(metadata(definition).at("pre"), GgufValue(std::string("gpt-2")));
  EXPECT_EQ(metadata(definition).at("add_bos_token"), GgufValue(false));
  definition.splits = {split_of_name("llama3")};
  EXPECT_EQ(metadata(definition).at("pre"), GgufValue(std::string("dbrx")));
  definition.ignore_merges = true;  // which is what llama.cpp does under this name
  EXPECT_EQ(metadata(definition).at("pre"), GgufValue(std::string("llama-bpe")));
  definition.prefix = {257};
  EXPECT_EQ(metadata(definition).at("bos_token_id"), GgufValue(std::uint32_t{257}));
  EXPECT_EQ(metadata(definition).at("add_bos_token"), GgufValue(true));
  EXPECT_EQ(metadata(definition).at("add_eos_token"), GgufValue(false));
  definition.suffix = {257};
  EXPECT_EQ(metadata(definition).at("add_eos_token"), GgufValue(true));
  definition.suffix = {257, 257};
  expect_bad_input([&] { metadata(definition); }, {"3 tokens around", "--to hf"});
  definition = small_bpe();
  definition.splits = {split_of_name("cl100k")};
  expect_bad_input([&] { metadata(definition); }, {"splits text", "--to hf"});
  definition.splits = {&gpt2_split()};
  definition.ignore_merges = true;
  expect_bad_input([&] { metadata(definition); }, {"splits text"});
  definition.ignore_merges = false;
  definition.add_prefix_space = true;
  expect_bad_input([&] { metadata(definition); }, {"splits text"});
  const BpeTokenizer tokenizer(small_bpe());
  expect_bad_input([&] { gguf_tokenizer(&tokenizer, 256, {}); }, {"258 tokens", "256"});
}

TEST_F(Gguf, ATokenizerTravels) {
  BpeDefinition definition = small_bpe();
  definition.splits = {&digit_split(), &gpt2_split()};
  definition.prefix = {257};
  const BpeTokenizer tokenizer(definition);
  make_checkpoint(path("run"), small_config(small_llama(false)), tokenizer.hash(),
                  to_tokenizer_json(definition));
  run_export(CheckpointSource(path("run")), "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  EXPECT_EQ(file.text_lists.at("tokenizer.ggml.merges"), std::vector<std::string>{"t h"});
  EXPECT_EQ(file.number_lists.at("tokenizer.ggml.token_type").at(257), 3);
  EXPECT_EQ(file.text_lists.at("tokenizer.ggml.tokens").at(257), "<|endoftext|>");
  EXPECT_EQ(file.numbers.at("tokenizer.ggml.eos_token_id"), 257);
  import_checkpoint(one_thread(), path("model.gguf"), path("back"), {"test", Overwrite::no});
  EXPECT_EQ(load_state(path("back")).tokenizer_hash, tokenizer.hash());
}

TEST_F(Gguf, CutFilesAreRefused) {
  make_checkpoint(path("run"), small_config(small_hybrid(false)), ByteTokenizer().hash());
  run_export(CheckpointSource(path("run")), "model.gguf");
  const std::string good = read_file(path("model.gguf"));
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  EXPECT_FALSE(is_refused([&] { parse_gguf(bytes(good), "good"); }));
  // Cut anywhere in front of the data, or right behind it.
  for (std::size_t size = 0; size < 6000; size += size < 400 ? 1 : 37)
    EXPECT_TRUE(is_refused([&] { parse_gguf(bytes(good.substr(0, size)), "cut"); })) << size;
  EXPECT_TRUE(is_refused([&] { parse_gguf(bytes(good.substr(0, good.size() - 64)), "cut"); }));
  // Counts and lengths that cannot be.
  for (const std::size_t at : {8UL, 16UL, 24UL}) {
    std::string bad = good;
    for (std::size_t i = 0; i < 8; ++i) bad[at + i] = '\xFF';
    EXPECT_TRUE(is_refused([&] { parse_gguf(bytes(bad), "huge"); })) << at;
  }
}

/// An export with one place changed.
class BadGguf : public Gguf {
 protected:
  void SetUp() override {
    make_checkpoint(path("run"), small_config(small_hybrid(false)), ByteTokenizer().hash());
    run_export(CheckpointSource(path("run")), "model.gguf");
    good_ = read_file(path("model.gguf"));
    bad_ = good_;
  }
  /// Where a key or the name of a tensor stands: its length is in front of it.
  std::size_t at(const std::string& name) const {
    std::string text(8, '\0');
    text[0] = static_cast<char>(name.size());
    const std::size_t found = good_.find(text + name);
    EXPECT_NE(found, good_.npos) << name;
    return found + 8;
  }
  std::size_t behind(const std::string& name) const { return at(name) + name.size(); }
  template <typename T>
  void put(std::size_t where, T value) {
    std::memcpy(bad_.data() + where, &value, sizeof(T));
  }
  template <typename T>
  T get(std::size_t where) const {
    T value;
    std::memcpy(&value, good_.data() + where, sizeof(T));
    return value;
  }
  void expect_refused(const std::vector<std::string>& words) {
    write_file(path("bad.gguf"), bad_);
    expect_bad_input([&] { import_checkpoint(one_thread(), path("bad.gguf"), path("back"), {}); }, words);
    EXPECT_FALSE(fs::exists(path("back")));
    bad_ = good_;
  }
  /// Where the data of the file begins: behind the description of the last tensor.
  std::size_t data() const {
    const std::size_t end = behind("output.weight") + 4 + 2 * 8 + 4 + 8;
    return (end + 31) / 32 * 32;
  }

  std::string good_, bad_;
};

TEST_F(BadGguf, Headers) {
  bad_[0] = 'g';
  expect_refused({"bad.gguf", "not a GGUF file", "config.json"});
  bad_[4] = 2;
  expect_refused({"bad.gguf", "version 2"});
  put(8, std::uint64_t{1} << 40);
  expect_refused({"1099511627776 tensors", "fetch it again"});
  put(24, std::uint64_t{1} << 60);  // the length of the first key
  expect_refused({"cut short or damaged", "byte 32"});
  put(behind("general.type"), std::uint32_t{77});
  expect_refused({"unknown kind 77"});
  bad_.replace(at("general.type"), 12, "general.name");
  expect_refused({"general.name", "twice"});
  put(behind("tokenizer.ggml.tokens") + 8, std::uint64_t{1} << 62);  // elements of the list
  expect_refused({"cut short or damaged"});
  bad_ = bad_.substr(0, bad_.size() - 32);
  expect_refused({"output.weight", "not in the file"});
}

TEST_F(BadGguf, Metadata) {
  bad_.replace(good_.find("nemotron_h"), 10, "nemotron_g");
  expect_refused({"nemotron_g", "only llama, qwen3 and nemotron_h"});
  put(behind("nemotron_h.block_count") + 4, std::uint32_t{0xFFFFFFFF});
  expect_refused({"block_count is 4294967295", "2048"});
  put(behind("nemotron_h.block_count") + 4, std::uint32_t{4});
  expect_refused({"head_count_kv", "4 entries"});
  // memory for it must not be asked for
  put(behind("nemotron_h.embedding_length") + 4, std::uint32_t{1 << 20});
  expect_refused({"token_embd.weight", "[272, 64]", "[272, 1048576]"});
  put(behind("nemotron_h.embedding_length") + 4, std::uint32_t{0x7FFFFFFF});
  expect_refused({"bad.gguf", "model.hidden is 2147483647"});
  put(behind("nemotron_h.context_length") + 4, std::uint32_t{0});
  expect_refused({"context_length is 0"});
  put(behind("nemotron_h.ssm.state_size"), std::uint32_t{6});  // a float
  expect_refused({"nemotron_h.ssm.state_size", "another kind"});
}

TEST_F(BadGguf, Tensors) {
  const std::size_t up = behind("blk.1.ffn_up.weight");  // u32 dimensions, u64 extents, u32 type, u64 offset
  put(up, std::uint32_t{9});
  expect_refused({"blk.1.ffn_up.weight", "9 dimensions"});
  put(up + 4, ~std::uint64_t{0});
  expect_refused({"blk.1.ffn_up.weight", "extent of 18446744073709551615"});
  put(up + 4, std::uint64_t{1} << 48), put(up + 12, std::uint64_t{1} << 48);
  expect_refused({"blk.1.ffn_up.weight", "more bytes than can be counted"});
  put(up + 4, std::uint64_t{0}), put(up + 12, std::uint64_t{1} << 40);
  expect_refused({"blk.1.ffn_up.weight", "rows of nothing"});
  // rows and columns changed places
  const std::size_t last_up = behind("blk.4.ffn_up.weight");
  put(last_up + 4, std::uint64_t{144}), put(last_up + 12, std::uint64_t{64});
  expect_refused({"blk.4.ffn_up.weight", "[64, 144]", "[144, 64]"});
  put(up + 20, std::uint32_t{12});
  expect_refused({"blk.1.ffn_up.weight", "type 12", "NVFP4"});
  put(up + 24, get<std::uint64_t>(up + 24) + 8);
  expect_refused({"blk.1.ffn_up.weight", "not aligned to 32"});
  put(up + 24, std::uint64_t{0});
  expect_refused({"blk.1.ffn_up.weight", "token_embd.weight", "overlap"});
  put(up + 24, ~std::uint64_t{31});
  expect_refused({"blk.1.ffn_up.weight", "not in the file"});
  bad_[at("blk.1.ffn_up.weight")] = 'x';
  expect_refused({"blk.1.ffn_up.weight", "missing"});
  // one that the model has no use for
  bad_.replace(at("output.weight"), 13, "output.wxight");
  expect_refused({"output.wxight", "has no tensor"});
}

TEST_F(BadGguf, Values) {
  const auto data_of = [&](const std::string& name, std::size_t dimensions) {
    return data() + get<std::uint64_t>(behind(name) + 4 + dimensions * 8 + 4);
  };
  put(data_of("output_norm.weight", 1), std::numeric_limits<float>::infinity());
  expect_refused({"output_norm.weight", "not finite"});
  put(data_of("blk.0.ssm_a", 2), 1.0f);  // -exp(A_log) is below zero
  expect_refused({"blk.0.ssm_a", "not finite"});
  put(data_of("blk.1.ffn_up.weight", 2), std::uint8_t{0x7F});
  expect_refused({"blk.1.ffn_up.weight", "not finite"});
  put(data_of("blk.1.ffn_up.scale", 1), std::numeric_limits<float>::quiet_NaN());
  expect_refused({"blk.1.ffn_up.weight", "not finite"});
}

TEST_F(BadGguf, OnlyGgufFilesAreReplaced) {
  const CheckpointSource source(path("run"));
  const Nvfp4Plan plan(source.config().precision, source.config().model, source.parameters());
  const ExportOptions force{.overwrite = Overwrite::yes};
  expect_bad_input([&] { run_export(source, "model.gguf"); }, {"--force"});
  write_file(path("thesis.txt"), "all of it");
  expect_bad_input([&] { export_gguf(source, path("thesis.txt"), force, plan, cpu_backend()); },
                   {"thesis.txt", "no GGUF file"});
  EXPECT_EQ(read_file(path("thesis.txt")), "all of it");
  expect_bad_input([&] { export_gguf(source, path("run"), force, plan, cpu_backend()); }, {"no GGUF file"});
  for (const char* point : {"file.create", "file.write@40", "file.fsync", "file.rename"}) {
    const std::string name = point;
    const std::size_t at = std::min(name.find('@'), name.size());
    set_failpoints(name.substr(0, at) + "=enospc" + name.substr(at));
    EXPECT_THROW(export_gguf(source, path("model.gguf"), force, plan, cpu_backend()), Error) << point;
    EXPECT_TRUE(read_file(path("model.gguf")) == good_) << point;
  }
  set_failpoints("");
  export_gguf(source, path("model.gguf"), force, plan, cpu_backend());
  EXPECT_TRUE(read_file(path("model.gguf")) == good_);
  EXPECT_EQ(folder_.files(), (std::vector<std::string>{"model.gguf", "run", "thesis.txt"}));
}

}  // namespace
}  // namespace tetrad::testing
