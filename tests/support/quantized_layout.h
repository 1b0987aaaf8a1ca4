// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rearranging quantized tensors, so that results in different layouts can be compared: bytes move, no value
// changes.

#include <algorithm>
#include <cstring>

#include "tetrad/core/error.h"
#include "tetrad/numerics/blackwell_layout.h"
#include "tetrad/numerics/e2m1.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::testing {

/// [rows, cols] -> [cols, rows]
template <typename T>
void transpose_elements(const T* in, std::int64_t rows, std::int64_t cols, T* out) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) out[col * rows + row] = in[row * cols + col];
}

inline std::size_t scale_element_bytes(const QuantizedTensor& tensor) {
  return tensor.spec.format == Format::fp8 ? sizeof(float) : 1;
}

inline QuantizedTensor empty_like(const QuantizedTensor& tensor) {
  QuantizedTensor result;
  result.spec = tensor.spec;
  result.rows = tensor.rows;
  result.cols = tensor.cols;
  result.amax = tensor.amax;
  result.codes = Buffer(tensor.codes.size());
  result.scales = Buffer(tensor.scales.size());
  return result;
}

/// Packed codes [rows, cols/2] -> [cols, rows/2]: nibbles change partners.
inline void transpose_packed(const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                             std::uint8_t* out) {
  for (std::int64_t pair = 0; pair < cols / 2; ++pair)
    for (std::int64_t row = 0; row < rows; row += 2) {
      const std::uint32_t upper = in[row * (cols / 2) + pair];
      const std::uint32_t lower = in[(row + 1) * (cols / 2) + pair];
      const std::int64_t at = pair * 2 * (rows / 2) + row / 2;
      out[at] = pack_e2m1(unpack_e2m1_even(upper), unpack_e2m1_even(lower));
      out[at + rows / 2] = pack_e2m1(unpack_e2m1_odd(upper), unpack_e2m1_odd(lower));
    }
}

/// Wᵀ from W, for square blocks: equal, byte for byte, to quantizing the transposed matrix with the same
/// spec. Row-major tensors only.
inline QuantizedTensor transposed(const QuantizedTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  TETRAD_CHECK(spec.block.rows == spec.block.cols && spec.rounding == Rounding::nearest && spec.hadamard == 0,
               "only square blocks, rounded to nearest and not transformed, are the same seen from both "
               "sides; this tensor "
               "is {}: quantize the transposed matrix instead",
               describe(spec));
  TETRAD_CHECK(tensor.order == CodeOrder::row_major,
               "transposed() takes row-major codes: call to_row_major() first");

  QuantizedTensor result = empty_like(tensor);
  std::swap(result.rows, result.cols);
  if (spec.format == Format::fp8) {
    transpose_elements(tensor.codes.as<std::uint8_t>(), tensor.rows, tensor.cols,
                       result.codes.as<std::uint8_t>());
    transpose_elements(tensor.scales.as<float>(), tensor.scale_rows(), tensor.scale_cols(),
                       result.scales.as<float>());
    return result;
  }
  transpose_packed(tensor.codes.as<std::uint8_t>(), tensor.rows, tensor.cols,
                   result.codes.as<std::uint8_t>());
  result.scales = Buffer(static_cast<std::size_t>(result.scale_rows() * result.scale_cols()));
  const auto* in = tensor.scales.as<std::uint8_t>();
  auto* out = result.scales.as<std::uint8_t>();
  const std::int64_t side = spec.block.cols;
  for (std::int64_t row = 0; row < result.rows; ++row)  // each scale stands in all rows of its square
    for (std::int64_t block = 0; block < result.scale_cols(); ++block)
      out[row * result.scale_cols() + block] = in[block * side * tensor.scale_cols() + row / side];
  return result;
}

inline QuantizedTensor to_row_major(const QuantizedTensor& tensor) {
  QuantizedTensor result = empty_like(tensor);
  if (tensor.order == CodeOrder::row_major) {
    if (tensor.codes.size() > 0) std::memcpy(result.codes.data(), tensor.codes.data(), tensor.codes.size());
    if (tensor.scales.size() > 0)
      std::memcpy(result.scales.data(), tensor.scales.data(), tensor.scales.size());
    return result;
  }
  transpose_elements(tensor.codes.as<std::uint8_t>(), tensor.code_bytes_per_row(), tensor.rows,
                     result.codes.as<std::uint8_t>());
  if (scale_element_bytes(tensor) == sizeof(float))
    transpose_elements(tensor.scales.as<float>(), tensor.scale_cols(), tensor.scale_rows(),
                       result.scales.as<float>());
  else
    transpose_elements(tensor.scales.as<std::uint8_t>(), tensor.scale_cols(), tensor.scale_rows(),
                       result.scales.as<std::uint8_t>());
  return result;
}

/// NVFP4 and MXFP4 block scales in the tiles that Blackwell's matrix library reads.
inline Buffer swizzle_scales(const QuantizedTensor& tensor) {
  TETRAD_CHECK(tensor.spec.format != Format::fp8 && tensor.order == CodeOrder::row_major,
               "the 128x4 tile layout is for row-major NVFP4 and MXFP4 scales, not for {}",
               describe(tensor.spec));
  const std::int64_t rows = tensor.scale_rows();
  const std::int64_t cols = tensor.scale_cols();
  Buffer out(static_cast<std::size_t>(blackwell::scale_bytes(rows, cols)));
  std::ranges::fill(out.span<std::uint8_t>(), std::uint8_t{0});
  const auto* in = tensor.scales.as<std::uint8_t>();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      out.as<std::uint8_t>()[blackwell::scale_offset(row, col, cols)] = in[row * cols + col];
  return out;
}

}  // namespace tetrad::testing
