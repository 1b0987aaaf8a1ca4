// GGUF: the bytes, taken apart by a reader that shares nothing with ours, and our reader on good and bad
// files.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "interchange/checkpoints.h"
#include "oracle/oracle.h"
#include "support/errors.h"
#include "tetrad/interchange/export_gguf.h"
#include "tetrad/interchange/gguf_file.h"
#include "tetrad/interchange/gguf_model.h"
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
    export_gguf(source, path(out), Overwrite::no, plan, cpu_backend());
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
      const std::string name = gguf_name(piece.name);
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
  EXPECT_GT(packed, is_llama ? 8 : 3);
  EXPECT_EQ(file.texts.at("general.architecture"), is_llama ? "llama" : "nemotron_h");
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
    import_checkpoint(path(name + ".gguf"), path(name + "-back"), {"test", Overwrite::no});
    const CheckpointSource back(path(name + "-back"));
    ModelConfig model = config.model;
    model.mamba.chunk = back.config().model.mamba.chunk;
    if (model.pattern.find('M') == std::string::npos) model.mamba = back.config().model.mamba;
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
      {"llama.block_count", 3},           {"llama.context_length", 32},
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
  EXPECT_EQ(file.text_lists.at("tokenizer.ggml.tokens").size(), 256U);
  EXPECT_EQ(file.text_lists.at("tokenizer.ggml.tokens")['a'], "a");
  // High frequencies stay, low ones are divided by 8.
  const std::vector<float> factors = file.values("rope_freqs.weight");
  ASSERT_EQ(factors.size(), 16U);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_FLOAT_EQ(factors.back(), 8.0f);
}

TEST_F(Gguf, ATokenizerTravels) {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) definition.tokens.emplace_back(1, static_cast<char>(byte));
  definition.tokens.emplace_back("th");
  definition.merges.emplace_back('t', 'h');
  definition.tokens.emplace_back(kEndOfText);
  definition.added.push_back({257, std::string(kEndOfText), true});
  const BpeTokenizer tokenizer(definition);
  make_checkpoint(path("run"), small_config(small_llama(false)), tokenizer.hash(),
                  to_tokenizer_json(definition));
  run_export(CheckpointSource(path("run")), "model.gguf");
  const PlainGguf file(read_file(path("model.gguf")));
  EXPECT_EQ(file.text_lists.at("tokenizer.ggml.merges"), std::vector<std::string>{"t h"});
  EXPECT_EQ(file.number_lists.at("tokenizer.ggml.token_type").back(), 3);
  EXPECT_EQ(file.numbers.at("tokenizer.ggml.eos_token_id"), 257);
  import_checkpoint(path("model.gguf"), path("back"), {"test", Overwrite::no});
  EXPECT_EQ(load_state(path("back")).tokenizer_hash, tokenizer.hash());
}

TEST_F(Gguf, BadFilesAreRefused) {
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
  for (const std::size_t at : {8, 16, 24}) {
    std::string bad = good;
    for (std::size_t i = 0; i < 8; ++i) bad[at + i] = '\xFF';
    EXPECT_TRUE(is_refused([&] { parse_gguf(bytes(bad), "huge"); })) << at;
  }
  std::string bad = good;
  bad[4] = 2;
  write_file(path("bad.gguf"), bad);
  expect_bad_input(
      [&] {
        import_checkpoint(path("bad.gguf"), path("back"), {"test", Overwrite::no});
      },
      {"bad.gguf", "version 2"});
  const std::size_t name = good.find("blk.1.ffn_up.weight");
  ASSERT_NE(name, good.npos);
  bad = good;
  bad[name] = 'x';
  write_file(path("bad.gguf"), bad);
  expect_bad_input(
      [&] {
        import_checkpoint(path("bad.gguf"), path("back"), {"test", Overwrite::no});
      },
      {"blk.1.ffn_up.weight", "missing"});
  EXPECT_FALSE(fs::exists(path("back")));
  expect_bad_input([&] { run_export(CheckpointSource(path("run")), "model.gguf"); }, {"--force"});
}

}  // namespace
}  // namespace tetrad::testing
