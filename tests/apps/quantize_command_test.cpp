// SPDX-License-Identifier: Apache-2.0
// `tetrad quantize`, typed as a user types it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "oracle/inputs.h"
#include "oracle/oracle.h"
#include "support/process.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad::testing {
namespace {

struct Input {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

template <typename T>
Input input(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
            const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {name, dtype, std::move(shape), std::move(bytes)};
}

std::string write_tensors(const TemporaryFolder& folder, const std::vector<Input>& inputs) {
  std::string path = folder.file("in.safetensors");
  std::vector<TensorDeclaration> declarations;
  for (const Input& tensor : inputs) declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, declarations);
  for (const Input& tensor : inputs) writer.write(tensor.name, tensor.bytes);
  writer.commit();
  return path;
}

template <typename T>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) return {};
  const auto bytes = file.bytes(*info);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void expect_tensor(const SafetensorsFile& file, const std::string& name, DType dtype,
                   const std::vector<std::int64_t>& shape) {
  const TensorInfo* info = file.find(name);
  ASSERT_NE(info, nullptr) << name;
  EXPECT_EQ(info->dtype, dtype) << name;
  EXPECT_EQ(info->shape, shape) << name;
}

std::vector<float> transpose(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<float> result(x.size());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      result[static_cast<std::size_t>(col * rows + row)] = x[static_cast<std::size_t>(row * cols + col)];
  return result;
}

TEST(QuantizeCommand, WritesWhatTheOracleComputes) {
  const TemporaryFolder folder;
  const std::vector<float> x = oracle::make_input("heavy_tailed", 32, 64);
  const std::string in = write_tensors(folder, {input("w", DType::f32, {32, 64}, x)});
  const std::string out = folder.file("a/new/folder/out.safetensors");
  const Outcome run = run_tetrad({"quantize", in, "-o", out, "--dequantize"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("SQNR dB"), std::string::npos);

  const SafetensorsFile file(out);
  expect_tensor(file, "w.codes", DType::u8, {32, 32});
  expect_tensor(file, "w.scales", DType::f8_e4m3, {32, 4});
  expect_tensor(file, "w.amax", DType::f32, {});
  expect_tensor(file, "w.dequantized", DType::f32, {32, 64});
  EXPECT_EQ(file.tensors().size(), 4u);
  const oracle::Result expected = oracle::quantize(x, 32, 64, {});
  EXPECT_EQ(values_of<std::uint8_t>(file, "w.codes"), expected.packed);
  EXPECT_EQ(values_of<std::uint8_t>(file, "w.scales"), expected.scale_bytes);
  EXPECT_EQ(values_of<float>(file, "w.amax"), std::vector<float>{expected.amax});
  EXPECT_EQ(values_of<float>(file, "w.dequantized"), expected.decoded);
}

TEST(QuantizeCommand, AxisZeroGivesTheTransposedTensorsResult) {
  const TemporaryFolder folder;
  const std::vector<float> x = oracle::make_input("gaussian", 64, 48);  // blocks along the 64
  const std::string in = write_tensors(folder, {input("w", DType::f32, {64, 48}, x)});
  const std::string out = folder.file("out.safetensors");
  const Outcome run = run_tetrad(
      {"quantize", in, "-o", out, "--axis", "0", "--hadamard", "16", "--scale", "search", "--dequantize"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const SafetensorsFile file(out);
  const oracle::Result expected =
      oracle::quantize(transpose(x, 64, 48), 48, 64, {.hadamard = 16, .scaling = oracle::Scaling::search});
  expect_tensor(file, "w.codes", DType::u8, {48, 32});
  expect_tensor(file, "w.scales", DType::f8_e4m3, {48, 4});
  expect_tensor(file, "w.dequantized", DType::f32, {48, 64});
  EXPECT_EQ(values_of<std::uint8_t>(file, "w.codes"), expected.packed);
  EXPECT_EQ(values_of<float>(file, "w.dequantized"), expected.decoded);
}

TEST(QuantizeCommand, OtherFormatsHaveTheirOwnTensors) {
  const TemporaryFolder folder;
  const std::vector<float> x = oracle::make_input("gaussian", 128, 256);
  const std::string in = write_tensors(folder, {input("w", DType::f32, {128, 256}, x)});
  const std::string out = folder.file("out.safetensors");
  struct Case {
    std::vector<std::string> options;
    DType codes;
    std::vector<std::int64_t> code_shape;
    DType scales;
    std::vector<std::int64_t> scale_shape;
  };
  for (const Case& test :
       {Case{{"--format", "mxfp4"}, DType::u8, {128, 128}, DType::u8, {128, 8}},
        Case{{"--format", "fp8"}, DType::f8_e4m3, {128, 256}, DType::f32, {128, 2}},
        Case{{"--format", "fp8", "--block", "128x128"}, DType::f8_e4m3, {128, 256}, DType::f32, {1, 2}},
        Case{{"--format", "fp8", "--block", "tensor"}, DType::f8_e4m3, {128, 256}, DType::f32, {}},
        Case{{"--block", "16x16"}, DType::u8, {128, 128}, DType::f8_e4m3, {128, 16}}}) {
    std::vector<std::string> arguments = {"quantize", in, "-o", out};
    arguments.insert(arguments.end(), test.options.begin(), test.options.end());
    const Outcome run = run_tetrad(arguments);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const SafetensorsFile file(out);
    expect_tensor(file, "w.codes", test.codes, test.code_shape);
    expect_tensor(file, "w.scales", test.scales, test.scale_shape);
  }
}

TEST(QuantizeCommand, ReadsEveryFloatTypeAndCopiesWhatIsNotAMatrix) {
  const TemporaryFolder folder;
  const std::vector<float> f32(16 * 16, 1.0f);
  const std::vector<Bf16> bf16(16 * 16, Bf16::from_f32(1.0f));
  const std::vector<std::uint16_t> f16(16 * 16, 0x3C00);
  const std::vector<std::int64_t> ids = {1, 2, 3};
  const std::string in =
      write_tensors(folder, {input("a", DType::f32, {16, 16}, f32), input("b", DType::bf16, {16, 16}, bf16),
                             input("c", DType::f16, {16, 16}, f16), input("ids", DType::i64, {3}, ids)});
  const std::string out = folder.file("out.safetensors");
  const Outcome run = run_tetrad({"quantize", in, "-o", out, "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const SafetensorsFile file(out);
  EXPECT_EQ(values_of<std::int64_t>(file, "ids"), ids);
  for (const std::string name : {"b", "c"}) {
    EXPECT_EQ(values_of<std::uint8_t>(file, name + ".codes"), values_of<std::uint8_t>(file, "a.codes"));
    EXPECT_EQ(values_of<float>(file, name + ".amax"), std::vector<float>{1.0f});
  }
  const auto report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report["copied"], 1);
  ASSERT_EQ(report["tensors"].size(), 3u);
  EXPECT_EQ(report["tensors"][0]["name"], "a");
  EXPECT_EQ(report["total"]["elements"], 3 * 256);
}

TEST(QuantizeCommand, TheReportIsRight) {
  const TemporaryFolder folder;
  const std::vector<float> x = oracle::make_input("outlier", 64, 256);
  const std::string in = write_tensors(folder, {input("w", DType::f32, {64, 256}, x)});
  const Outcome run = run_tetrad({"quantize", in, "-o", folder.file("out.safetensors"), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto row = nlohmann::json::parse(run.out)["tensors"][0];
  const oracle::Result expected = oracle::quantize(x, 64, 256, {});
  EXPECT_NEAR(row["sqnr_db"].get<double>(), 10 * std::log10(expected.signal / expected.noise), 1e-3);
  EXPECT_NEAR(row["max_error"].get<double>(), expected.max_error, 1e-5 * expected.max_error);
  EXPECT_DOUBLE_EQ(row["flushed_fraction"].get<double>(), static_cast<double>(expected.flushed) / (64 * 256));
  EXPECT_DOUBLE_EQ(row["saturated_fraction"].get<double>(),
                   static_cast<double>(expected.saturated) / (64 * 256));
  EXPECT_EQ(row["zero_scale_blocks"], expected.zero_scale_blocks);
}

TEST(QuantizeCommand, StochasticRoundingFollowsTheSeedAndNotTheThreads) {
  const TemporaryFolder folder;
  const std::string in =
      write_tensors(folder, {input("w", DType::f32, {64, 256}, oracle::make_input("gaussian", 64, 256)),
                             input("v", DType::f32, {64, 256}, oracle::make_input("gaussian", 64, 256))});
  const auto codes = [&](const std::string& seed, const std::string& threads, const std::string& name) {
    const std::string out = folder.file("out.safetensors");
    const Outcome run = run_tetrad(
        {"quantize", in, "-o", out, "--rounding", "stochastic", "--seed", seed, "--threads", threads});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return values_of<std::uint8_t>(SafetensorsFile(out), name + ".codes");
  };
  EXPECT_EQ(codes("1", "1", "w"), codes("1", "2", "w"));
  EXPECT_NE(codes("1", "1", "w"), codes("2", "1", "w"));
  EXPECT_NE(codes("1", "1", "w"), codes("1", "1", "v")) << "the same values under another name";
}

// ---------------------------------------------------------------------------------------------------------------------

/// Fails with exit code 2 and one line that contains `substance`, and leaves nothing behind.
void expect_bad_input(const TemporaryFolder& folder, const std::vector<std::string>& arguments,
                      const std::string& substance) {
  const std::vector<std::string> before = folder.files();
  const Outcome run = run_tetrad(arguments);
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find(substance), std::string::npos) << run.err;
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  EXPECT_EQ(folder.files(), before) << "a partial output was left";
}

TEST(QuantizeCommand, RefusesBadTensors) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out.safetensors");
  const std::vector<float> x(16 * 32, 1.0f);
  auto refused = [&](const std::vector<Input>& inputs, const std::string& substance,
                     const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"quantize", write_tensors(folder, inputs), "-o", out};
    arguments.insert(arguments.end(), options.begin(), options.end());
    expect_bad_input(folder, arguments, substance);
  };
  refused({input("w", DType::f32, {32, 8}, std::vector<float>(256))}, "not a multiple of 16");
  refused({input("w", DType::f32, {8, 32}, std::vector<float>(256))}, "dimension 0 has 8", {"--axis", "0"});
  refused({input("w", DType::f32, {8, 32}, std::vector<float>(256))}, "16x16", {"--block", "16x16"});
  refused({input("w", DType::f32, {16, 32}, x)}, "Hadamard size 64", {"--hadamard", "64"});
  refused({input("w", DType::f32, {16, 32}, x)}, "block 16x16 does not exist in mxfp4",
          {"--format", "mxfp4", "--block", "16x16"});
  refused({input("w", DType::i32, {16, 32}, x)}, "dtype I32");
  refused({input("w", DType::f32, {512}, x)}, "no 2-D tensor");
  refused({input("w", DType::f32, {16, 32}, x), input("w.codes", DType::f32, {512}, x)}, "w.codes");
  std::vector<float> bad = x;
  bad[40] = std::numeric_limits<float>::quiet_NaN();
  refused({input("fine", DType::f32, {16, 32}, x), input("w", DType::f32, {16, 32}, bad)}, "at [1, 8]");
  bad[40] = -std::numeric_limits<float>::infinity();
  refused({input("w", DType::f32, {16, 32}, bad)}, "not finite");
  const std::vector<float> huge(16 * 32, std::numeric_limits<float>::max());
  refused({input("w", DType::f32, {16, 32}, huge)}, "overflow in the Hadamard transform",
          {"--hadamard", "16"});
}

TEST(QuantizeCommand, RefusesBadFilesAndPlaces) {
  const TemporaryFolder folder;
  const std::string in =
      write_tensors(folder, {input("w", DType::f32, {16, 16}, std::vector<float>(256, 1.0f))});
  const std::string out = folder.file("out.safetensors");
  expect_bad_input(folder, {"quantize", folder.file("absent"), "-o", out}, "absent");
  expect_bad_input(folder, {"quantize", folder.path().string(), "-o", out}, folder.path().string());
  expect_bad_input(folder, {"quantize", in, "-o", in + "/out.safetensors"}, "out.safetensors");
  expect_bad_input(folder, {"quantize", in, "-o", in + "/new/out.safetensors"}, "out.safetensors");
  expect_bad_input(folder, {"quantize", in, "-o", folder.path().string()}, folder.path().string());
  expect_bad_input(folder, {"quantize", in}, "-o");

  const std::string whole = read_file(in);
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{40}, whole.size() - 1}) {
    write_file(in, std::string_view(whole).substr(0, size));
    expect_bad_input(folder, {"quantize", in, "-o", out}, "in.safetensors");
  }
  std::string huge_header = whole;
  huge_header[6] = '\x7f';
  write_file(in, huge_header);
  expect_bad_input(folder, {"quantize", in, "-o", out}, "in.safetensors");
}

TEST(QuantizeCommand, AFailureLeavesAnExistingOutputAlone) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out.safetensors");
  write_file(out, "precious");
  std::vector<float> bad(256, std::numeric_limits<float>::infinity());
  const std::string in = write_tensors(folder, {input("w", DType::f32, {16, 16}, bad)});
  expect_bad_input(folder, {"quantize", in, "-o", out}, "not finite");
  EXPECT_EQ(read_file(out), "precious");
}

TEST(QuantizeCommand, OutputMayReplaceTheInput) {
  const TemporaryFolder folder;
  const std::string path =
      write_tensors(folder, {input("w", DType::f32, {16, 16}, std::vector<float>(256, 1.0f))});
  ASSERT_EQ(run_tetrad({"quantize", path, "-o", path}).exit_code, 0);
  EXPECT_NE(SafetensorsFile(path).find("w.codes"), nullptr);
}

TEST(QuantizeCommand, DemoCoversEveryFormat) {
  const Outcome run = run_tetrad({"quantize", "--demo", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string text = nlohmann::json::parse(run.out).dump();
  for (const std::string word :
       {"gaussian", "heavy-tailed", "outlier channels", "nvfp4 16x16", "mxfp4", "fp8 128x128"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace tetrad::testing
