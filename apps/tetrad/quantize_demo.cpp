// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "error_table.h"
#include "quantize_command.h"
#include "tetrad/io/json_text.h"
#include "tetrad/ops/backend.h"

namespace tetrad::app {
namespace {

constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kCols = 1024;

struct DemoTensor {
  std::string name;
  std::string what;
  std::vector<float> values;
};

std::vector<DemoTensor> demo_tensors(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> student(3.0f);
  std::vector<DemoTensor> tensors = {
      {"gaussian", "normal, as weights are at the start", {}},
      {"heavy-tailed", "Student t with 3 degrees of freedom, as gradients are", {}},
      {"outlier channels", "normal, 8 of 1024 channels 50 times larger, as activations are", {}}};
  for (DemoTensor& tensor : tensors) tensor.values.resize(static_cast<std::size_t>(kRows * kCols));
  for (std::size_t i = 0; i < tensors[0].values.size(); ++i) {
    tensors[0].values[i] = normal(generator);
    tensors[1].values[i] = student(generator);
    tensors[2].values[i] = normal(generator) * (i % 128 == 77 ? 50.0f : 1.0f);
  }
  return tensors;
}

std::vector<QuantSpec> demo_specs() {
  constexpr auto kSr = Rounding::stochastic;
  return {{.block = {1, 16}},
          {.block = {16, 16}},
          {.block = {1, 16}, .rounding = kSr},
          {.block = {1, 16}, .hadamard = 16},
          {.block = {1, 16}, .rounding = kSr, .hadamard = 16},
          {.block = {1, 16}, .scaling = Scaling::four_six},
          {.block = {1, 16}, .scaling = Scaling::search},
          {.block = {1, 16}, .hadamard = 16, .scaling = Scaling::search},
          {.block = {1, 16}, .hadamard = 128, .scaling = Scaling::eden},
          {.format = Format::mxfp4, .block = {1, 32}},
          {.format = Format::mxfp4, .block = {1, 32}, .scaling = Scaling::up},
          {.format = Format::mxfp4, .block = {1, 32}, .hadamard = 32},
          {.format = Format::fp8, .block = {1, 128}},
          {.format = Format::fp8, .block = {128, 128}},
          {.format = Format::fp8, .block = BlockShape::whole()}};
}

double bits_per_value(const QuantizedTensor& tensor) {
  return 8.0 * static_cast<double>(tensor.codes.size() + tensor.scales.size()) /
         static_cast<double>(tensor.rows * tensor.cols);
}

}  // namespace

void quantize_demo(std::uint64_t seed, int threads, bool json) {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = threads, .instruction_set = {}});
  nlohmann::json object = nlohmann::json::array();
  for (const DemoTensor& tensor : demo_tensors(seed)) {
    std::vector<ErrorRow> rows;
    for (const QuantSpec& spec : demo_specs()) {
      QuantizedTensor quantized;
      const QuantStats stats =
          cpu->quantize(view_of(tensor.values.data(), kRows, kCols), spec,
                        {.random = {.seed = seed}, .telemetry = Telemetry::full}, quantized);
      rows.push_back({describe(spec), fmt::format("{:.2f}", bits_per_value(quantized)), stats});
      nlohmann::json entry = to_json(stats);
      entry.update({{"tensor", tensor.name},
                    {"quantizer", describe(spec)},
                    {"bits_per_value", bits_per_value(quantized)}});
      object.push_back(std::move(entry));
    }
    if (!json)
      fmt::print("{}: {}\n{}\n", tensor.name, tensor.what, error_table("quantizer", "bits/value", rows));
  }
  if (json)
    fmt::print("{}\n", json_text(nlohmann::json{{"demo", object}}, 2));
  else
    fmt::print("Now your own weights:  tetrad quantize model.safetensors -o model-nvfp4.safetensors\n");
}

}  // namespace tetrad::app
