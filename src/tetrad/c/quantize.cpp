// SPDX-License-Identifier: Apache-2.0
#include "tetrad/c/boundary.h"
#include "tetrad/ops/file_random.h"

using namespace tetrad;  // NOLINT(google-build-using-namespace): everything here is ours

namespace {

tetrad_layout layout_of(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  TETRAD_CHECK(rows >= 0 && cols >= 0, "{} x {} is no shape", rows, cols);
  QuantizedTensor tensor;  // only for its arithmetic on shapes
  tensor.spec = spec;
  tensor.rows = spec.axis == 0 ? cols : rows;
  tensor.cols = spec.axis == 0 ? rows : cols;
  validate(spec, tensor.rows, tensor.cols, "quantizer");
  const PackedSize size = packed_size(spec, tensor.rows, tensor.cols);
  constexpr std::int32_t kScaleTypes[] = {TETRAD_E4M3, TETRAD_E8M0, TETRAD_F32};  // by Format
  return {.struct_size = sizeof(tetrad_layout),
          .rows = tensor.rows,
          .cols = tensor.cols,
          .code_bytes = size.codes,
          .scale_rows = tensor.scale_rows(),
          .scale_cols = tensor.scale_cols(),
          .scale_bytes = size.scales,
          .scale_dtype = kScaleTypes[static_cast<std::size_t>(spec.format)],
          .reserved = 0};
}

tetrad_quantize_stats to_c(const QuantStats& stats) {
  return {.struct_size = sizeof(tetrad_quantize_stats),
          .amax = stats.amax,
          .signal = stats.signal,
          .noise = stats.noise,
          .max_error = stats.max_error,
          .elements = stats.measured,
          .non_finite = stats.non_finite,
          .flushed = stats.flushed,
          .saturated = stats.saturated,
          .blocks = stats.blocks,
          .zero_scale_blocks = stats.zero_scale_blocks};
}

QuantizeOptions options_of(const tetrad_context& context, const tetrad_quantize_options* options) {
  QuantizeOptions result;
  result.telemetry = Telemetry::none;
  if (options == nullptr) return result;
  const tetrad_quantize_options known = c::read_struct(options, "options");
  const RandomKey key =
      c::key_by_value(context, known.key, {known.random.seed, known.random.step, known.random.microbatch});
  result.random = RandomStream{.tensor = known.random.tensor}.with(key);
  result.key = c::key_on_device(context, known.key);
  result.part = {known.first_row, known.first_col, known.total_cols};
  TETRAD_CHECK(known.first_row >= 0 && known.first_col >= 0 && known.total_cols >= 0,
               "options: a place before the beginning of the tensor");
  if (known.amax != nullptr) result.amax = *known.amax;
  return result;
}

}  // namespace

QuantizedTensor c::borrow_tensor(const tetrad_context& context, const tetrad_quantized& memory,
                                 const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  const bool transposed = spec.axis == 0;
  const tetrad_layout layout = layout_of(spec, transposed ? cols : rows, transposed ? rows : cols);
  TETRAD_CHECK(memory.amax != nullptr, "quantized: amax is NULL");
  TETRAD_CHECK(memory.code_bytes == static_cast<std::size_t>(layout.code_bytes) &&
                   memory.scale_bytes == static_cast<std::size_t>(layout.scale_bytes),
               "quantized: {} bytes of codes and {} of scales, where a {} x {} matrix has {} and {} "
               "(tetrad_quantized_layout)",
               memory.code_bytes, memory.scale_bytes, layout.rows, layout.cols, layout.code_bytes,
               layout.scale_bytes);
  TETRAD_CHECK((memory.codes != nullptr || memory.code_bytes == 0) &&
                   (memory.scales != nullptr || memory.scale_bytes == 0),
               "quantized: codes or scales are NULL");
  TETRAD_CHECK(
      spec.format != Format::fp8 || reinterpret_cast<std::uintptr_t>(memory.scales) % sizeof(float) == 0,
      "quantized: scales are not aligned to f32");
  QuantizedTensor tensor;
  tensor.spec = spec;
  tensor.rows = layout.rows;
  tensor.cols = layout.cols;
  tensor.codes = c::borrow(memory.codes, memory.code_bytes);
  tensor.scales = c::borrow(memory.scales, memory.scale_bytes);
  if (context.on_device) tensor.device_amax = c::borrow(memory.amax, sizeof(float));
  return tensor;
}

tetrad_status tetrad_quantizer_init(tetrad_quantizer* quantizer, size_t struct_size, const char* format,
                                    const char* block, const char* rounding) {
  return c::guarded([&] {
    tetrad_quantizer& out = c::required(quantizer, "quantizer");
    const Format chosen = format_from_name(&c::required(format, "format"));
    const BlockShape shape = block == nullptr ? default_block(chosen) : block_from_name(block);
    const Rounding rounded = rounding == nullptr ? Rounding::nearest : rounding_from_name(rounding);
    out.struct_size = struct_size;
    c::write_struct({.struct_size = struct_size,
                     .format = static_cast<std::int32_t>(chosen) + TETRAD_NVFP4,
                     .block_rows = static_cast<std::int32_t>(shape.rows),
                     .block_cols = static_cast<std::int32_t>(shape.cols),
                     .axis = 1,
                     .rounding = static_cast<std::int32_t>(rounded),
                     .hadamard = 0,
                     .signs = kFixedSignPattern,
                     .scale = TETRAD_SCALE_STANDARD,
                     .long_signs = {}},
                    out, "quantizer");
  });
}

tetrad_status tetrad_quantizer_set_scale(tetrad_quantizer* quantizer, const char* scale) {
  return c::guarded([&] {
    tetrad_quantizer known = c::read_struct(quantizer, "quantizer");
    const QuantSpec spec = c::quant_spec(quantizer, "quantizer");
    known.scale = static_cast<std::int32_t>(scaling_from_name(&c::required(scale, "scale"), spec.format));
    c::write_struct(known, *quantizer, "quantizer");
  });
}

tetrad_status tetrad_quantizer_draw_signs(tetrad_quantizer* quantizer, uint64_t seed) {
  return c::guarded([&] {
    tetrad_quantizer known = c::read_struct(quantizer, "quantizer");
    TETRAD_CHECK(known.struct_size >= sizeof(known), "quantizer: this header's has no room for 128 signs");
    std::ranges::copy(signs_of_file(seed).word, known.long_signs);
    c::write_struct(known, *quantizer, "quantizer");
  });
}

uint32_t tetrad_tensor_of_name(const char* name) { return name == nullptr ? 0 : tensor_of_name(name); }

tetrad_status tetrad_quantized_layout(const tetrad_quantizer* quantizer, int64_t rows, int64_t cols,
                                      tetrad_layout* layout) {
  return c::guarded([&] {
    const tetrad_layout result = layout_of(c::quant_spec(quantizer, "quantizer"), rows, cols);
    c::write_struct(result, c::required(layout, "layout"), "layout");
  });
}

tetrad_status tetrad_quantize(tetrad_context* context, const tetrad_matrix* x,
                              const tetrad_quantizer* quantizer, const tetrad_quantize_options* options,
                              const tetrad_quantized* out, tetrad_quantize_stats* stats) {
  return c::guarded([&] {
    tetrad_context& where = c::required(context, "context");
    const MatrixView input = c::input_matrix(c::required(x, "x"), "x");
    const QuantSpec spec = c::quant_spec(quantizer, "quantizer");
    const tetrad_quantized memory = c::read_struct(out, "out");
    const bool transposed = spec.axis == 0;
    QuantizedTensor tensor = c::borrow_tensor(where, memory, spec, transposed ? input.cols : input.rows,
                                              transposed ? input.rows : input.cols);
    QuantizeOptions chosen = options_of(where, options);
    if (stats != nullptr) chosen.telemetry = Telemetry::full;
    const QuantStats measured = where.backend->quantize(input, spec, chosen, tensor);
    if (!where.on_device) *memory.amax = tensor.amax;
    if (stats != nullptr) c::write_struct(to_c(measured), *stats, "stats");
  });
}

tetrad_status tetrad_dequantize(tetrad_context* context, const tetrad_quantizer* quantizer,
                                const tetrad_quantized* in, const tetrad_matrix* out) {
  return c::guarded([&] {
    tetrad_context& where = c::required(context, "context");
    const MutableMatrixView output = c::output_matrix(c::required(out, "out"), "out");
    const QuantSpec spec = c::quant_spec(quantizer, "quantizer");
    const tetrad_quantized memory = c::read_struct(in, "in");
    QuantizedTensor tensor = c::borrow_tensor(where, memory, spec, output.rows, output.cols);
    if (!where.on_device) tensor.amax = *memory.amax;
    where.backend->dequantize(tensor, output);
  });
}
