// SPDX-License-Identifier: Apache-2.0
// Quantization on the host's side: what is refused, where results and intermediate figures lie, which kernels
// run. Nothing waits for the device unless statistics are asked for.

#include "tetrad/backend/cuda/quantize/quantize.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/backend/cuda/quantize/decode.h"
#include "tetrad/backend/cuda/quantize/kernels.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

/// Which kernels serve a problem.
enum class Path : std::uint8_t { nvfp4_rows, nvfp4_columns, nvfp4_eden, nvfp4_2d, fp8_tiles, mxfp4, generic };

Path path_of(const QuantProblem& problem) {
  if (suits_nvfp4_rows(problem)) return Path::nvfp4_rows;
  if (suits_nvfp4_columns(problem)) return Path::nvfp4_columns;
  if (suits_nvfp4_eden(problem)) return Path::nvfp4_eden;
  if (suits_nvfp4_2d(problem)) return Path::nvfp4_2d;
  if (suits_fp8_tiles(problem)) return Path::fp8_tiles;
  if (suits_mxfp4(problem)) return Path::mxfp4;
  return Path::generic;
}

void refuse_bad_input(const MatrixView& consumed, const QuantSpec& spec, const PartOfTensor& part) {
  validate(spec, consumed.rows, consumed.cols, "quantize");
  TETRAD_CHECK(part.first_col % kGroup == 0 && part.total_cols % kGroup == 0,
               "a part of a tensor must begin at a column that is a multiple of 16, not at {} of {}",
               part.first_col, part.total_cols);
  TETRAD_CHECK(consumed.dtype == DType::f32 || consumed.dtype == DType::bf16,
               "cannot quantize {} values: convert to F32 or BF16", name_of(consumed.dtype));
  TETRAD_CHECK(consumed.row_stride == 1 || consumed.col_stride == 1,
               "a matrix to quantize must be contiguous along one dimension");
}

/// Makes `out` ready for the result. Buffers are reused when they fit.
void prepare(Device& device, const MatrixView& consumed, const QuantSpec& spec,
             const QuantizeOptions& options, QuantizedTensor& out) {
  out.spec = spec;
  out.rows = consumed.rows;
  out.cols = consumed.cols;
  out.order = options.order;
  out.form =
      options.form == Form::operand ? operand_form(spec.format, device.native_capability()) : Form::packed;
  out.amax = 0;  // not known here unless statistics are asked for
  const auto reuse = [&](Buffer& buffer, std::int64_t bytes) {
    if (buffer.refit(static_cast<std::size_t>(bytes))) return;
    buffer = {};  // first: both need not fit
    buffer = device.allocate(static_cast<std::size_t>(bytes));
  };
  constexpr std::int64_t kBf16Bytes = 2;
  const bool operand = out.form == Form::operand;
  const std::int64_t scale_bytes = spec.format == Format::fp8 ? sizeof(float) : 1;
  reuse(out.codes, operand ? out.rows * out.cols * kBf16Bytes : out.rows * out.code_bytes_per_row());
  reuse(out.scales, operand ? 0 : out.scale_rows() * out.scale_cols() * scale_bytes);
  reuse(out.device_amax, sizeof(float));
}

/// The memory between the passes: the states of two tensors, block maxima, chosen scales, statistics.
struct Workspace {
  QuantState* states;
  std::uint32_t* block_amax;
  std::uint8_t* chosen;
  QuantPart* parts;
};

Workspace make_workspace(Device& device, const QuantProblem& problem, bool blocks, bool statistics) {
  constexpr std::int64_t kAlignment = 256;
  const auto aligned = [](std::int64_t bytes) { return ceil_div(bytes, kAlignment) * kAlignment; };
  const std::int64_t count =
      blocks && !problem.whole ? problem.block_rows_total * problem.block_cols_total : 0;
  const std::int64_t amax_bytes = aligned(count * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  const std::int64_t chosen_bytes = depends_on_values(problem.scaling) ? aligned(count) : 0;
  const std::int64_t part_bytes = statistics ? kQuantParts * static_cast<std::int64_t>(sizeof(QuantPart)) : 0;
  std::byte* memory = device.scratch(
      Device::partial_sums, static_cast<std::size_t>(kAlignment + amax_bytes + chosen_bytes + part_bytes));
  check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(kAlignment + amax_bytes), device.stream()));
  std::byte* after_amax = memory + kAlignment + amax_bytes;
  return {reinterpret_cast<QuantState*>(memory), reinterpret_cast<std::uint32_t*>(memory + kAlignment),
          reinterpret_cast<std::uint8_t*>(after_amax),
          reinterpret_cast<QuantPart*>(after_amax + chosen_bytes)};
}

/// Whether kernels need nothing to be known of the tensor before they encode it.
bool is_one_pass(Path path) { return path == Path::fp8_tiles || path == Path::mxfp4; }

/// The state of a tensor that is encoded in one pass.
QuantState* one_pass_state(Device& device) { return reinterpret_cast<QuantState*>(device.flag()); }

/// The state of an input whose amax its producer reported, or null.
QuantState* known_state(const QuantProblem& problem, const AmaxReport* report) {
  if (report == nullptr || !report->known) return nullptr;
  if (problem.hadamard == 0) return reinterpret_cast<QuantState*>(report->values);
  const bool down_columns =
      !problem.is_row_major() && problem.hadamard == kGroup && problem.signs == kFixedSigns;
  return down_columns ? reinterpret_cast<QuantState*>(report->values + 1) : nullptr;
}

void first_pass(Device& device, const QuantProblem& problem, Path path, bool need_blocks) {
  if (need_blocks || path == Path::generic)
    find_amax(device, problem);
  else if (problem.hadamard == 0)
    find_plain_amax(device, problem);
  else if (path == Path::nvfp4_rows)
    find_nvfp4_row_amax(device, problem);
  else if (path == Path::nvfp4_eden)
    find_nvfp4_eden_amax(device, problem);
  else
    find_nvfp4_column_amax(device, problem);
}

void second_pass(Device& device, const QuantProblem& problem, Path path) {
  switch (path) {
    case Path::nvfp4_rows:
      return encode_nvfp4_rows(device, problem);
    case Path::nvfp4_columns:
      return encode_nvfp4_columns(device, problem);
    case Path::nvfp4_eden:
      return encode_nvfp4_eden(device, problem);
    case Path::nvfp4_2d:
      return encode_nvfp4_2d(device, problem);
    case Path::fp8_tiles:
      return encode_fp8_tiles(device, problem);
    case Path::mxfp4:
      return encode_mxfp4(device, problem);
    case Path::generic:
      return encode(device, problem);
  }
}

/// Waits for the device.
QuantStats read_statistics(Device& device, const QuantProblem& problem, const Workspace& memory) {
  std::uint32_t amax_bits = 0;
  std::vector<QuantPart> parts(kQuantParts);
  const auto download = [&](void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device.stream()));
  };
  download(&amax_bits, &problem.state->amax_bits, sizeof(amax_bits));
  download(parts.data(), memory.parts, parts.size() * sizeof(QuantPart));
  device.synchronize();
  QuantPart sum;
  for (const QuantPart& part : parts) sum.merge(part);
  return {.amax = std::bit_cast<float>(amax_bits),
          .non_finite = sum.non_finite,
          .blocks = problem.whole ? 1 : problem.block_rows_total * problem.block_cols_total,
          .zero_scale_blocks = sum.zero_scale_blocks,
          .measured = sum.measured,
          .flushed = sum.flushed,
          .saturated = sum.saturated,
          .signal = sum.signal,
          .noise = sum.noise,
          .max_error = sum.max_error};
}

}  // namespace

QuantStats quantize(Device& device, const MatrixView& x, const QuantSpec& spec,
                    const QuantizeOptions& options, QuantizedTensor& out) {
  const MatrixView consumed = spec.axis == 0 ? x.transposed() : x;
  refuse_bad_input(consumed, spec, options.part);
  prepare(device, consumed, spec, options, out);
  QuantProblem problem = make_problem(consumed, spec, options, out);
  const Path path = path_of(problem);
  const bool statistics = options.telemetry != Telemetry::none;
  if (is_one_pass(path) && !statistics) {
    problem.state = one_pass_state(device);
    second_pass(device, problem, path);
    return {};
  }
  const bool need_blocks = statistics || path == Path::generic;
  if (QuantState* known = known_state(problem, options.input); known != nullptr && !need_blocks) {
    problem.state = known;
    second_pass(device, problem, path);
    return {};
  }
  const Workspace memory = make_workspace(device, problem, need_blocks, statistics);
  problem.state = memory.states;
  problem.block_amax = memory.block_amax;
  problem.chosen = memory.chosen;

  first_pass(device, problem, path, need_blocks);
  if (depends_on_values(problem.scaling) && need_blocks) find_scales(device, problem);
  second_pass(device, problem, path);
  if (!statistics) return {};
  measure(device, problem, options.telemetry == Telemetry::sampled, memory.parts);
  const QuantStats stats = read_statistics(device, problem, memory);
  out.amax =
      std::isfinite(stats.amax) ? options.amax.value_or(stats.amax) : std::numeric_limits<float>::quiet_NaN();
  return stats;
}

void quantize_two(Device& device, const MatrixView& x, const QuantSpec& row_spec,
                  const QuantizeOptions& row_options, QuantizedTensor& row_out, const QuantSpec& col_spec,
                  const QuantizeOptions& col_options, QuantizedTensor& col_out) {
  const auto make = [&](const QuantSpec& spec, const QuantizeOptions& options, QuantizedTensor& out) {
    const MatrixView consumed = spec.axis == 0 ? x.transposed() : x;
    refuse_bad_input(consumed, spec, options.part);
    prepare(device, consumed, spec, options, out);
    return make_problem(consumed, spec, options, out);
  };
  QuantProblem row = make(row_spec, row_options, row_out);
  QuantProblem column = make(col_spec, col_options, col_out);
  const bool tiles = suit_fp8_tiles(row, column);
  if (!(tiles || suit_nvfp4_rows_and_columns(row, column))) {
    quantize(device, x, row_spec, row_options, row_out);
    quantize(device, x, col_spec, col_options, col_out);
    return;
  }
  if (tiles) {
    row.state = one_pass_state(device);
    column.state = row.state;
    encode_fp8_tiles(device, row, column);
    return;
  }
  row.state = known_state(row, row_options.input);
  column.state = known_state(column, col_options.input);
  if (row.state == nullptr || column.state == nullptr) {
    const Workspace memory = make_workspace(device, row, false, false);
    row.state = memory.states;
    column.state = memory.states + 1;
    find_nvfp4_row_and_column_amax(device, row, column);
  }
  encode_nvfp4_rows_and_columns(device, row, column);
}

void dequantize(Device& device, const QuantizedTensor& tensor, const MutableMatrixView& out) {
  TETRAD_CHECK(out.rows == tensor.rows && out.cols == tensor.cols && out.is_row_major(),
               "dequantize: a {} x {} tensor does not fit a {} x {} output", tensor.rows, tensor.cols,
               out.rows, out.cols);
  TETRAD_CHECK(out.dtype == DType::f32 || out.dtype == DType::bf16,
               "dequantize: output must be F32 or BF16, not {}", name_of(out.dtype));
  decode_values(device, tensor, out);
}

void expand(Device& device, const QuantizedTensor& tensor, Bf16* out) {
  TETRAD_CHECK(!has_f32_block_scales(tensor.spec) && tensor.form == Form::packed,
               "expand: only packed tensors whose values are exact in BF16 are expanded, not {}",
               describe(tensor.spec));
  decode_operand(device, tensor, out);
}

}  // namespace tetrad::cuda
