// SPDX-License-Identifier: Apache-2.0
// Panels of the operands are decoded to f32, tiles multiplied with OpenBLAS.
//
// The cut into panels and tiles follows from the shape, and each tile is one single-threaded SGEMM, so the
// result does not depend on the number of threads.

#include "tetrad/backend/cpu/gemm_f32.h"

#include <cblas.h>

#include <algorithm>

#include "tetrad/backend/cpu/decode.h"
#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kPanel = 2048;  //!< rows of an operand that are decoded at a time
constexpr std::int64_t kLargestTile = 512;
constexpr std::int64_t kSmallestTile = 64;
constexpr std::int64_t kEnoughF32Tiles = 4;

/// f32 rows of an operand, where they lie or decoded.
struct Panel {
  const float* data;
  std::int64_t stride;
  bool transposed;  //!< data is [K, rows] instead of [rows, K]

  const float* row(std::int64_t index) const { return transposed ? data + index : data + index * stride; }
  /// Between the lines of a [rows, depth] tile. A single line may have any stride, but BLAS wants one that
  /// fits.
  blasint blas_stride(std::int64_t rows, std::int64_t depth) const {
    return static_cast<blasint>(std::max(stride, transposed ? rows : depth));
  }
  CBLAS_TRANSPOSE blas_flag(bool flipped) const { return transposed != flipped ? CblasTrans : CblasNoTrans; }
};

/// Splits `extent` into pieces of a multiple of 16 and calls body(first, count) for each, in parallel.
template <typename Body>
void parallel_pieces(std::int64_t extent, std::int64_t other_extent, const Body& body) {
  constexpr std::int64_t kElements = 1 << 15;
  const std::int64_t piece =
      16 * std::max<std::int64_t>(1, kElements / (16 * std::max<std::int64_t>(1, other_extent)));
  parallel_for(ceil_div(extent, piece),
               [&](std::int64_t i) { body(i * piece, std::min(piece, extent - i * piece)); });
}

Panel decode_bf16(const MatrixView& view, std::int64_t first, std::int64_t count, Buffer& buffer) {
  // The view's rows [first, first + count), in the order in which they lie.
  const bool by_rows = view.is_row_major();
  const std::int64_t lines = by_rows ? count : view.cols;
  const std::int64_t length = by_rows ? view.cols : count;
  const std::int64_t line_stride = by_rows ? view.row_stride : view.col_stride;
  const Bf16* in = static_cast<const Bf16*>(view.data) + (by_rows ? first * view.row_stride : first);
  float* out = workspace(buffer, lines * length);
  parallel_pieces(lines, length, [&](std::int64_t line, std::int64_t line_count) {
    for (std::int64_t l = line; l < line + line_count; ++l)
      for (std::int64_t i = 0; i < length; ++i) out[l * length + i] = in[l * line_stride + i].to_f32();
  });
  return {out, length, !by_rows};
}

Panel decode_quantized(const QuantizedTensor& tensor, bool transposed, std::int64_t first, std::int64_t count,
                       Buffer& buffer) {
  // The operand's rows are the tensor's rows, or its columns if it is used transposed.
  const Rectangle part =
      transposed ? Rectangle{0, tensor.rows, first, count} : Rectangle{first, count, 0, tensor.cols};
  const bool row_major = tensor.order == CodeOrder::row_major;
  const std::int64_t stride = row_major ? part.col_count : part.row_count;
  float* out = workspace(buffer, part.row_count * part.col_count);
  if (row_major)
    parallel_pieces(part.row_count, part.col_count, [&](std::int64_t row, std::int64_t rows) {
      decode(tensor, {part.first_row + row, rows, part.first_col, part.col_count}, DecodeTo::operand,
             out + row * stride, stride);
    });
  else
    parallel_pieces(part.col_count, part.row_count, [&](std::int64_t col, std::int64_t cols) {
      decode(tensor, {part.first_row, part.row_count, part.first_col + col, cols}, DecodeTo::operand,
             out + col * stride, stride);
    });
  return {out, stride, row_major == transposed};
}

Panel make_panel(const GemmOperand& operand, std::int64_t first, std::int64_t count, Buffer& buffer) {
  if (operand.quantized() != nullptr)
    return decode_quantized(*operand.quantized(), operand.is_transposed(), first, count, buffer);
  const MatrixView view = operand.is_transposed() ? operand.dense()->transposed() : *operand.dense();
  if (view.dtype == DType::bf16) return decode_bf16(view, first, count, buffer);
  const auto* data = static_cast<const float*>(view.data);
  return view.is_row_major() ? Panel{data + first * view.row_stride, view.row_stride, false}
                             : Panel{data + first, view.col_stride, true};
}

std::int64_t tile_edge(std::int64_t rows, std::int64_t cols) {
  std::int64_t edge = kLargestTile;
  while (edge > kSmallestTile && ceil_div(rows, edge) * ceil_div(cols, edge) < kEnoughF32Tiles) edge /= 2;
  return edge;
}

struct TileTask {
  std::int64_t rows, cols, depth;
  float alpha;
  float beta;
};

void multiply(const TileTask& task, const Panel& a, std::int64_t row, const Panel& b, std::int64_t col,
              float* out, std::int64_t out_stride) {
  const auto blas_int = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, a.blas_flag(false), b.blas_flag(true), blas_int(task.rows), blas_int(task.cols),
              blas_int(task.depth), task.alpha, a.row(row), a.blas_stride(task.rows, task.depth), b.row(col),
              b.blas_stride(task.cols, task.depth), task.beta, out, blas_int(out_stride));
}

}  // namespace

void gemm_f32(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
              Accumulate accumulate) {
  thread_local Buffer buffer_a;
  thread_local Buffer buffer_b;
  const float alpha = gemm_alpha(a, b);
  const float beta = accumulate == Accumulate::yes ? 1.0f : 0.0f;
  const std::int64_t edge = tile_edge(out.rows, out.cols);

  for (std::int64_t first_col = 0; first_col < out.cols; first_col += kPanel) {
    const std::int64_t cols = std::min(kPanel, out.cols - first_col);
    const Panel panel_b = make_panel(b, first_col, cols, buffer_b);
    for (std::int64_t first_row = 0; first_row < out.rows; first_row += kPanel) {
      const std::int64_t rows = std::min(kPanel, out.rows - first_row);
      const Panel panel_a = make_panel(a, first_row, rows, buffer_a);
      const std::int64_t tiles_across = ceil_div(cols, edge);
      parallel_for(ceil_div(rows, edge) * tiles_across, [&](std::int64_t tile) {
        const std::int64_t row = tile / tiles_across * edge;
        const std::int64_t col = tile % tiles_across * edge;
        const TileTask task{std::min(edge, rows - row), std::min(edge, cols - col), a.cols(), alpha, beta};
        const std::int64_t at = (first_row + row) * out.row_stride + first_col + col;
        if (out.dtype == DType::f32) {
          multiply(task, panel_a, row, panel_b, col, static_cast<float*>(out.data) + at, out.row_stride);
          return;
        }
        thread_local Buffer result;
        float* values = workspace(result, task.rows * task.cols);
        multiply(task, panel_a, row, panel_b, col, values, task.cols);
        for (std::int64_t r = 0; r < task.rows; ++r)
          for (std::int64_t c = 0; c < task.cols; ++c)
            static_cast<Bf16*>(out.data)[at + r * out.row_stride + c] =
                Bf16::from_f32(values[r * task.cols + c]);
      });
    }
  }
}

}  // namespace tetrad::cpu
