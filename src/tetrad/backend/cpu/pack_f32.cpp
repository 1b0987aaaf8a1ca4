// SPDX-License-Identifier: Apache-2.0
// Sixteen rows and a piece of the depth at a time are brought into lines of sixteen rows, in the cache, and
// cut into strips from there.

#include "tetrad/backend/cpu/pack_f32.h"

#include <algorithm>
#include <cstring>

#include "tetrad/backend/cpu/pack_bf16.h"
#include "tetrad/backend/cpu/rows.h"
#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kRows = 16;
constexpr std::int64_t kDepth = 128;

using Lines = float[kDepth * kRows];

/// BF16 values: pairs of them lie in words.
void load_pairs(const GemmOperand& operand, const Rectangle& piece, float* lines) {
  std::uint32_t words[kDepth / 2 * kRows];
  pack_bf16(operand, piece, words);
  for (std::int64_t p = 0; p < packed_pairs(piece.col_count); ++p) {
    U32x16 pairs;
    std::memcpy(&pairs, words + p * kRows, sizeof(pairs));
    const U32x16 even = pairs << 16;
    const U32x16 odd = pairs & 0xFFFF0000u;
    std::memcpy(lines + 2 * p * kRows, &even, sizeof(even));
    std::memcpy(lines + (2 * p + 1) * kRows, &odd, sizeof(odd));
  }
}

/// f32 values of which `in` is the first: lines are rows of the operand, or its columns.
void load_dense(const float* in, std::int64_t stride, bool lines_are_rows, const Rectangle& piece,
                float* lines) {
  const std::int64_t count = lines_are_rows ? piece.row_count : piece.col_count;
  const std::int64_t length = lines_are_rows ? piece.col_count : piece.row_count;
  const auto bytes = static_cast<std::size_t>(length) * sizeof(float);
  if (!lines_are_rows) {
    if (length == kRows)
      for (std::int64_t l = 0; l < count; ++l) copy_lanes(in + l * stride, lines + l * kRows);
    else
      for (std::int64_t l = 0; l < count; ++l) std::memcpy(lines + l * kRows, in + l * stride, bytes);
    return;
  }
  if (count == kRows && length % 8 == 0) {
    transpose_tile(in, kRows, length, stride, lines, kRows);
    return;
  }
  Lines rows = {};
  for (std::int64_t l = 0; l < count; ++l) std::memcpy(rows + l * kDepth, in + l * stride, bytes);
  transpose_tile(rows, kRows, kDepth, kDepth, lines, kRows);
}

/// Codes that are no BF16 values with their scales: FP8 in blocks across K.
void load_decoded(const QuantizedTensor& tensor, bool transposed, const Rectangle& piece, float* lines) {
  const Rectangle part =
      transposed ? Rectangle{piece.first_col, piece.col_count, piece.first_row, piece.row_count} : piece;
  const bool row_major = tensor.order == CodeOrder::row_major;
  const std::int64_t stride = row_major ? part.col_count : part.row_count;
  Lines decoded;
  decode(tensor, part, DecodeTo::operand, decoded, stride);
  load_dense(decoded, stride, row_major != transposed, piece, lines);
}

void load_lines(const GemmOperand& operand, const Rectangle& piece, float* lines) {
  if (is_packable(operand)) return load_pairs(operand, piece, lines);
  if (piece.row_count < kRows || piece.col_count % 16 != 0) std::memset(lines, 0, sizeof(Lines));
  if (operand.quantized() != nullptr)
    return load_decoded(*operand.quantized(), operand.is_transposed(), piece, lines);
  const MatrixView view = operand.is_transposed() ? operand.dense()->transposed() : *operand.dense();
  const bool by_rows = view.is_row_major();
  const std::int64_t stride = by_rows ? view.row_stride : view.col_stride;
  const std::int64_t first =
      by_rows ? piece.first_row * stride + piece.first_col : piece.first_col * stride + piece.first_row;
  load_dense(static_cast<const float*>(view.data) + first, stride, by_rows, piece, lines);
}

/// `strip_stride` is from one strip to the next.
template <int kStrip>
void store_strips(const float* lines, std::int64_t count, std::int64_t strips, std::int64_t strip_stride,
                  float* out) {
  for (std::int64_t s = 0; s < strips; ++s)
    for (std::int64_t k = 0; k < count; ++k)
      std::memcpy(out + s * strip_stride + k * kStrip, lines + k * kRows + s * kStrip,
                  kStrip * sizeof(float));
}

}  // namespace

void pack_f32(const GemmOperand& operand, const Rectangle& part, std::int64_t strip, float* out) {
  alignas(64) Lines lines;
  const std::int64_t depth = 2 * packed_pairs(part.col_count);
  for (std::int64_t row = 0; row < part.row_count; row += kRows)
    for (std::int64_t col = 0; col < part.col_count; col += kDepth) {
      const Rectangle piece{part.first_row + row, std::min(kRows, part.row_count - row), part.first_col + col,
                            std::min(kDepth, part.col_count - col)};
      load_lines(operand, piece, lines);
      const std::int64_t count = 2 * packed_pairs(piece.col_count);
      const std::int64_t strips = (piece.row_count + strip - 1) / strip;
      float* to = out + row * depth + col * strip;
      if (strip == 16)
        store_strips<16>(lines, count, strips, strip * depth, to);
      else if (strip == 8)
        store_strips<8>(lines, count, strips, strip * depth, to);
      else
        store_strips<4>(lines, count, strips, strip * depth, to);
    }
}

}  // namespace tetrad::cpu
