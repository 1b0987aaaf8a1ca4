#include "tetrad/backend/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {

void load_rows(const MatrixView& view, const Part& part, float scale, float* out, std::int64_t stride) {
  const std::int64_t first = part.row * view.row_stride + part.col;
  for (std::int64_t r = 0; r < part.rows; ++r) {
    float* row = out + r * stride;
    if (view.dtype == DType::bf16) {
      const Bf16* in = static_cast<const Bf16*>(view.data) + first + r * view.row_stride;
      for (std::int64_t c = 0; c < part.cols; ++c) row[c] = scale * in[c].to_f32();
    } else {
      const float* in = static_cast<const float*>(view.data) + first + r * view.row_stride;
      for (std::int64_t c = 0; c < part.cols; ++c) row[c] = scale * in[c];
    }
    std::fill(row + part.cols, row + stride, 0.0f);
  }
  std::fill(out + part.rows * stride, out + padded(part.rows) * stride, 0.0f);
}

void transpose_tile(const float* in, std::int64_t rows, std::int64_t cols, std::int64_t in_stride, float* out,
                    std::int64_t out_stride) {
  constexpr std::int64_t kEdge = 8;
  for (std::int64_t row = 0; row < rows; row += kEdge)
    for (std::int64_t col = 0; col < cols; col += kEdge) {
      U32x8 square[kEdge];
      for (std::int64_t r = 0; r < kEdge; ++r)
        std::memcpy(&square[r], in + (row + r) * in_stride + col, sizeof(U32x8));
      transpose(square);
      for (std::int64_t c = 0; c < kEdge; ++c)
        std::memcpy(out + (col + c) * out_stride + row, &square[c], sizeof(U32x8));
    }
}

void store_rows(const float* in, std::int64_t stride, const MutableMatrixView& view, const Part& part) {
  const std::int64_t first = part.row * view.row_stride + part.col;
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const float* row = in + r * stride;
    if (view.dtype == DType::bf16) {
      Bf16* out = static_cast<Bf16*>(view.data) + first + r * view.row_stride;
      for (std::int64_t c = 0; c < part.cols; ++c) out[c] = Bf16::from_f32(row[c]);
    } else {
      std::copy_n(row, part.cols, static_cast<float*>(view.data) + first + r * view.row_stride);
    }
  }
}

}  // namespace tetrad::cpu
