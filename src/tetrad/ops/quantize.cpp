// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/numerics/fp8.h"
#include "tetrad/numerics/mxfp4.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

template <typename Enum, std::size_t kCount>
Enum from_name(std::string_view name, const std::array<std::pair<std::string_view, Enum>, kCount>& table,
               std::string_view what) {
  std::string choices;
  for (const auto& [known, value] : table) {
    if (known == name) return value;
    choices += fmt::format("{}{}", choices.empty() ? "" : ", ", known);
  }
  fail("unknown {} '{}': choose one of {}", what, name, choices);
}

template <typename Enum, std::size_t kCount>
std::string_view to_name(Enum value, const std::array<std::pair<std::string_view, Enum>, kCount>& table) {
  for (const auto& [name, known] : table)
    if (known == value) return name;
  return "?";
}

constexpr std::array<std::pair<std::string_view, Format>, 3> kFormats{
    {{"nvfp4", Format::nvfp4}, {"mxfp4", Format::mxfp4}, {"fp8", Format::fp8}}};

constexpr std::array<std::pair<std::string_view, Rounding>, 3> kRoundings{
    {{"nearest", Rounding::nearest},
     {"stochastic", Rounding::stochastic},
     {"stochastic-hardware", Rounding::stochastic_hardware}}};

constexpr std::array<std::pair<std::string_view, Scaling>, 4> kNvfp4Scalings{{{"nearest", Scaling::standard},
                                                                              {"4/6", Scaling::four_six},
                                                                              {"search", Scaling::search},
                                                                              {"eden", Scaling::eden}}};
constexpr std::array<std::pair<std::string_view, Scaling>, 2> kMxfp4Scalings{
    {{"floor", Scaling::standard}, {"up", Scaling::up}}};
constexpr std::array<std::pair<std::string_view, Scaling>, 1> kFp8Scalings{{{"nearest", Scaling::standard}}};

/// Calls body with the scalings of a format, by name.
template <typename Body>
auto with_scalings(Format format, const Body& body) {
  if (format == Format::nvfp4) return body(kNvfp4Scalings);
  return format == Format::mxfp4 ? body(kMxfp4Scalings) : body(kFp8Scalings);
}

constexpr std::array<std::pair<std::string_view, BlockShape>, 7> kBlocks{
    {{"1x16", {1, nvfp4::kBlock}},
     {"16x16", {nvfp4::kBlock, nvfp4::kBlock}},
     {"1x32", {1, mxfp4::kBlock}},
     {"32x32", {mxfp4::kBlock, mxfp4::kBlock}},
     {"1x128", {1, fp8::kBlock}},
     {"128x128", {fp8::kBlock, fp8::kBlock}},
     {"tensor", BlockShape::whole()}}};

bool block_fits_format(const BlockShape& block, Format format) {
  switch (format) {
    case Format::nvfp4:
      return block.cols == nvfp4::kBlock && (block.rows == 1 || block.rows == nvfp4::kBlock);
    case Format::mxfp4:
      return block.cols == mxfp4::kBlock && (block.rows == 1 || block.rows == mxfp4::kBlock);
    case Format::fp8:
      return block.is_whole() ||
             (block.cols == fp8::kBlock && (block.rows == 1 || block.rows == fp8::kBlock));
  }
  return false;
}

std::string_view block_choices(Format format) {
  switch (format) {
    case Format::nvfp4:
      return "1x16 or 16x16";
    case Format::mxfp4:
      return "1x32 or 32x32";
    case Format::fp8:
      return "1x128, 128x128 or tensor";
  }
  return "";
}

bool has_scaling(Format format, Scaling scaling) {
  return with_scalings(format, [&](const auto& table) {
    return std::ranges::any_of(table, [&](const auto& entry) { return entry.second == scaling; });
  });
}

std::string scaling_choices(Format format) {
  return with_scalings(format, [](const auto& table) {
    std::string choices;
    for (const auto& [name, unused] : table)
      choices += fmt::format("{}{}", choices.empty() ? "" : ", ", name);
    return choices;
  });
}

}  // namespace

double QuantStats::sqnr_db() const {
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

void QuantStats::merge(const QuantStats& other) {
  amax = std::max(amax, other.amax);
  non_finite += other.non_finite;
  blocks += other.blocks;
  zero_scale_blocks += other.zero_scale_blocks;
  measured += other.measured;
  flushed += other.flushed;
  saturated += other.saturated;
  signal += other.signal;
  noise += other.noise;
  max_error = std::max(max_error, other.max_error);
}

PackedSize packed_size(const QuantSpec& spec, std::int64_t rows, std::int64_t cols) {
  QuantizedTensor tensor;
  tensor.spec = spec;
  tensor.rows = rows;
  tensor.cols = cols;
  const std::int64_t scale_bytes = spec.format == Format::fp8 ? 4 : 1;
  return {rows * tensor.code_bytes_per_row(), tensor.scale_rows() * tensor.scale_cols() * scale_bytes};
}

std::int64_t QuantizedTensor::scale_rows() const {
  if (spec.block.is_whole()) return 1;
  return spec.format == Format::fp8 ? ceil_div(rows, spec.block.rows) : rows;
}

std::int64_t QuantizedTensor::scale_cols() const {
  return spec.block.is_whole() ? 1 : ceil_div(cols, spec.block.cols);
}

QuantizedTensor::Factor QuantizedTensor::alpha_factor(float amax_of_tensor) const {
  if (spec.format == Format::nvfp4)
    return {nvfp4::alpha_amax(amax_of_tensor, spec.scaling), nvfp4::tensor_range(spec.scaling)};
  if (spec.block.is_whole()) return {*scales.as<float>(), 1.0f};
  return {};
}

bool can_stack(const QuantSpec& spec) { return spec.axis == 1 && spec.block.rows == 1; }

void validate(const QuantSpec& spec, std::int64_t rows, std::int64_t cols, std::string_view what) {
  TETRAD_CHECK(block_fits_format(spec.block, spec.format), "{}: block {} does not exist in {}: use {}", what,
               name_of(spec.block), name_of(spec.format), block_choices(spec.format));
  TETRAD_CHECK(spec.axis == 0 || spec.axis == 1, "{}: axis must be 0 or 1, not {}", what, spec.axis);
  TETRAD_CHECK(has_scaling(spec.format, spec.scaling), "{}: {} has no such scaling: use {}", what,
               name_of(spec.format), scaling_choices(spec.format));
  TETRAD_CHECK(spec.hadamard == 0 || is_hadamard_size(spec.hadamard),
               "{}: Hadamard size {} is not supported: use 0 (none), 2, 4, 8, 16, 32, 64 or 128", what,
               spec.hadamard);

  if (spec.scaling == Scaling::eden) {
    TETRAD_CHECK(
        spec.hadamard >= nvfp4::kBlock,
        "{}: eden corrects what rounding took from a rotated group, so it needs a Hadamard transform "
        "of 16, 32, 64 or 128, not {}",
        what, spec.hadamard);
    TETRAD_CHECK(spec.block.rows == 1, "{}: eden is for 1x16 blocks, not {}", what, name_of(spec.block));
    TETRAD_CHECK(spec.rounding == Rounding::nearest,
                 "{}: eden draws scales, so that codes are rounded to nearest: leave stochastic rounding out",
                 what);
  }

  const int columns_axis = spec.axis;
  TETRAD_CHECK(cols % RandomStream::kGroup == 0,
               "{}: dimension {} has {} elements, which is not a multiple of 16 as {} blocks along it need: "
               "pad the tensor "
               "or choose another axis",
               what, columns_axis, cols, name_of(spec.format));
  TETRAD_CHECK(spec.block != (BlockShape{nvfp4::kBlock, nvfp4::kBlock}) || rows % nvfp4::kBlock == 0,
               "{}: dimension {} has {} elements, which is not a multiple of 16 as 16x16 blocks need: pad "
               "the tensor or "
               "use 1x16 blocks",
               what, 1 - columns_axis, rows);
  TETRAD_CHECK(
      spec.hadamard == 0 || cols % spec.hadamard == 0,
      "{}: dimension {} has {} elements, which is not a multiple of the Hadamard size {}: use a smaller one",
      what, columns_axis, cols, spec.hadamard);
  TETRAD_CHECK(!spec.is_random() || rows * cols / RandomStream::kGroup <= 0xFFFFFFFFll,
               "{}: {} x {} elements are more than the 2^36 that one stream of random bits covers", what,
               rows, cols);
}

BlockShape default_block(Format format) {
  switch (format) {
    case Format::nvfp4:
      return {1, nvfp4::kBlock};
    case Format::mxfp4:
      return {1, mxfp4::kBlock};
    case Format::fp8:
      return {1, fp8::kBlock};
  }
  return {};
}

std::string_view name_of(Format format) { return to_name(format, kFormats); }
std::string_view name_of(Rounding rounding) { return to_name(rounding, kRoundings); }
std::string_view name_of(Scaling scaling, Format format) {
  return with_scalings(format, [&](const auto& table) { return to_name(scaling, table); });
}
std::string name_of(const BlockShape& block) {
  return block.is_whole() ? "tensor" : fmt::format("{}x{}", block.rows, block.cols);
}
Format format_from_name(std::string_view name) { return from_name(name, kFormats, "format"); }
Rounding rounding_from_name(std::string_view name) { return from_name(name, kRoundings, "rounding"); }
Scaling scaling_from_name(std::string_view name, Format format) {
  return with_scalings(format, [&](const auto& table) {
    return from_name(name, table, fmt::format("scaling of {}", name_of(format)));
  });
}
BlockShape block_from_name(std::string_view name) { return from_name(name, kBlocks, "block shape"); }

std::string describe(const QuantSpec& spec) {
  std::string text = fmt::format("{} {}", name_of(spec.format), name_of(spec.block));
  if (spec.axis == 0) text += ", axis 0";
  text += fmt::format(", {}", name_of(spec.rounding));
  if (spec.hadamard > 0)
    text += fmt::format(", hadamard {}{}", spec.hadamard, spec.signs == kNoSigns ? " without signs" : "");
  if (spec.scaling != Scaling::standard)
    text += fmt::format(", scale {}", name_of(spec.scaling, spec.format));
  return text;
}

}  // namespace tetrad
