// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "error_table.h"
#include "progress.h"
#include "quantize_command.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/numerics/f16.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/file_random.h"

namespace tetrad::app {
namespace {

bool is_matrix(const TensorInfo& tensor) { return tensor.shape.size() == 2; }

/// [rows, cols] as consumed: blocks along cols.
struct Extent {
  std::int64_t rows, cols;
};

Extent consumed_extent(const TensorInfo& tensor, const QuantSpec& spec) {
  return spec.axis == 1 ? Extent{tensor.shape[0], tensor.shape[1]} : Extent{tensor.shape[1], tensor.shape[0]};
}

/// A file's tensor as an aligned f32 or BF16 matrix. Files promise no alignment, so elements are copied out.
class LoadedMatrix {
 public:
  LoadedMatrix(const TensorInfo& tensor, std::span<const std::byte> bytes)
      : shape_{tensor.shape[0], tensor.shape[1]},
        dtype_(tensor.dtype == DType::bf16 ? DType::bf16 : DType::f32) {
    const std::size_t count = bytes.size() * 8 / static_cast<std::size_t>(bits_of(tensor.dtype));
    buffer_ = Buffer(tensor.dtype == DType::f16 ? count * sizeof(float) : bytes.size());
    if (bytes.empty()) return;
    if (tensor.dtype != DType::f16) {
      std::memcpy(buffer_.data(), bytes.data(), bytes.size());
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t code = 0;
      std::memcpy(&code, bytes.data() + 2 * i, sizeof(code));
      buffer_.as<float>()[i] = F16::decode(code);
    }
  }

  MatrixView view() const { return {buffer_.data(), dtype_, shape_[0], shape_[1], shape_[1], 1}; }

  float at(std::int64_t index) const {
    return dtype_ == DType::bf16 ? buffer_.as<Bf16>()[index].to_f32() : buffer_.as<float>()[index];
  }

 private:
  std::int64_t shape_[2] = {};
  DType dtype_;
  Buffer buffer_;
};

void check_matrix(const TensorInfo& tensor, const QuantSpec& spec) {
  const std::string what = fmt::format("tensor {}", quoted_name(tensor.name));
  TETRAD_CHECK(tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16,
               "{} has dtype {}, which cannot be quantized: convert it to F32, BF16 or F16", what,
               name_of(tensor.dtype));
  const Extent extent = consumed_extent(tensor, spec);
  validate(spec, extent.rows, extent.cols, what);
}

/// What OUT will hold for one input tensor. Shapes follow from the spec, so the file can be laid out before
/// any work.
std::vector<TensorDeclaration> outputs_of(const TensorInfo& tensor, const QuantizeArguments& arguments) {
  if (!is_matrix(tensor)) return {{tensor.name, tensor.dtype, tensor.shape}};
  const Extent extent = consumed_extent(tensor, arguments.spec);
  QuantizedTensor layout;  // only for its arithmetic on shapes
  layout.spec = arguments.spec;
  layout.rows = extent.rows;
  layout.cols = extent.cols;
  const bool fp8 = arguments.spec.format == Format::fp8;
  const DType scale_dtype =
      fp8 ? DType::f32 : (arguments.spec.format == Format::nvfp4 ? DType::f8_e4m3 : DType::u8);
  std::vector<std::int64_t> scale_shape = {layout.scale_rows(), layout.scale_cols()};
  if (arguments.spec.block.is_whole()) scale_shape.clear();

  std::vector<TensorDeclaration> outputs = {
      {tensor.name + ".codes", fp8 ? DType::f8_e4m3 : DType::u8, {extent.rows, layout.code_bytes_per_row()}},
      {tensor.name + ".scales", scale_dtype, scale_shape}};
  if (arguments.spec.format == Format::nvfp4) outputs.push_back({tensor.name + ".amax", DType::f32, {}});
  if (arguments.dequantize)
    outputs.push_back({tensor.name + ".dequantized", DType::f32, {extent.rows, extent.cols}});
  return outputs;
}

std::vector<TensorDeclaration> all_outputs(const SafetensorsFile& file, const QuantizeArguments& arguments) {
  std::vector<TensorDeclaration> declarations;
  std::set<std::string> names;
  bool any_matrix = false;
  for (const TensorInfo& tensor : file.tensors()) {
    if (is_matrix(tensor)) check_matrix(tensor, arguments.spec);
    any_matrix |= is_matrix(tensor);
    for (TensorDeclaration& output : outputs_of(tensor, arguments)) {
      TETRAD_CHECK(
          names.insert(output.name).second,
          "two tensors of '{}' would both be written as {}: rename one (is the input quantized already?)",
          arguments.input, quoted_name(output.name));
      declarations.push_back(std::move(output));
    }
  }
  TETRAD_CHECK(any_matrix, "'{}' has no 2-D tensor, so there is nothing to quantize", arguments.input);
  return declarations;
}

[[noreturn]] void fail_non_finite(const TensorInfo& tensor, const LoadedMatrix& matrix,
                                  const QuantStats& stats) {
  const std::int64_t cols = tensor.shape[1];
  for (std::int64_t i = 0; i < matrix.view().size(); ++i)
    if (!std::isfinite(matrix.at(i)))
      fail("tensor {} has values that are not finite, the first ({}) at [{}, {}]: repair the tensor",
           quoted_name(tensor.name), matrix.at(i), i / cols, i % cols);
  fail(
      "tensor {}: {} values overflow in the Hadamard transform: its largest values are beyond what BF16 can "
      "sum; scale the "
      "tensor down or use --hadamard 0",
      quoted_name(tensor.name), stats.non_finite);
}

QuantStats quantize_tensor(Backend& cpu, const TensorInfo& tensor, std::span<const std::byte> bytes,
                           const QuantizeArguments& arguments, SafetensorsWriter& writer) {
  const LoadedMatrix matrix(tensor, bytes);
  QuantizedTensor quantized;
  const QuantStats stats =
      cpu.quantize(matrix.view(), arguments.spec,
                   {.random = {.seed = arguments.seed, .tensor = tensor_of_name(tensor.name)},
                    .telemetry = Telemetry::full},
                   quantized);
  if (stats.non_finite > 0) fail_non_finite(tensor, matrix, stats);

  writer.write(tensor.name + ".codes", quantized.codes.span<std::byte>());
  writer.write(tensor.name + ".scales", quantized.scales.span<std::byte>());
  if (arguments.spec.format == Format::nvfp4)
    writer.write(tensor.name + ".amax", std::as_bytes(std::span(&quantized.amax, 1)));
  if (arguments.dequantize) {
    Buffer decoded(static_cast<std::size_t>(quantized.rows * quantized.cols) * sizeof(float));
    cpu.dequantize(quantized, mutable_view_of(decoded.as<float>(), quantized.rows, quantized.cols));
    writer.write(tensor.name + ".dequantized", decoded.span<std::byte>());
  }
  return stats;
}

void print_report(const QuantizeArguments& arguments, std::vector<ErrorRow> rows, std::size_t copied) {
  QuantStats total;
  nlohmann::json tensors = nlohmann::json::array();
  for (const ErrorRow& row : rows) {
    total.merge(row.stats);
    nlohmann::json entry = to_json(row.stats);
    entry.update({{"name", row.name}, {"shape", row.detail}});
    tensors.push_back(std::move(entry));
  }
  if (arguments.json) {
    const nlohmann::json object = {{"input", arguments.input},
                                   {"output", arguments.output},
                                   {"quantizer", describe(arguments.spec)},
                                   {"tensors", std::move(tensors)},
                                   {"total", to_json(total)},
                                   {"copied", copied}};
    fmt::print("{}\n", json_text(object, 2));
    return;
  }
  fmt::print("{}\n", describe(arguments.spec));
  rows.push_back({"all", "", total});
  fmt::print("{}", error_table("tensor", "shape", rows));
  fmt::print("wrote {}{}\n", arguments.output,
             copied == 0 ? "" : fmt::format(" ({} tensors that are not 2-D were copied unchanged)", copied));
}

}  // namespace

void quantize_file(const QuantizeArguments& arguments) {
  const SafetensorsFile file(arguments.input);
  const std::vector<TensorDeclaration> outputs = all_outputs(file, arguments);
  const FoldersAbove folders(arguments.output);
  SafetensorsWriter writer(arguments.output, outputs, {{"tetrad.quantizer", describe(arguments.spec)}});
  const std::unique_ptr<Backend> cpu =
      make_cpu_backend({.threads = arguments.threads, .instruction_set = {}});
  std::vector<ErrorRow> rows;
  std::int64_t done = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    const auto bytes = file.bytes(tensor);
    if (is_matrix(tensor))
      rows.push_back({tensor.name, fmt::format("{}x{}", tensor.shape[0], tensor.shape[1]),
                      quantize_tensor(*cpu, tensor, bytes, arguments, writer)});
    else
      writer.write(tensor.name, bytes);
    show_progress(tensor.name, ++done, std::ssize(file.tensors()));
  }
  writer.commit();
  std::ranges::sort(rows, {}, &ErrorRow::name);
  print_report(arguments, rows, file.tensors().size() - rows.size());
}

}  // namespace tetrad::app
