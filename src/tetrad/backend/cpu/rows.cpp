// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "tetrad/backend/cpu/product.h"
#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {

namespace {

float to_f32(float x) { return x; }
float to_f32(Bf16 x) { return x.to_f32(); }
void assign(float x, float& out) { out = x; }
void assign(float x, Bf16& out) { out = Bf16::from_f32(x); }

template <typename T>
void load_rows_of(const MatrixView& view, const Part& part, float scale, float* out, std::int64_t stride) {
  const T* in = static_cast<const T*>(view.data) + part.row * view.row_stride + part.col;
  const std::int64_t whole = part.cols / kVector * kVector;
  for (std::int64_t r = 0; r < part.rows; ++r, in += view.row_stride, out += stride) {
    for (std::int64_t c = 0; c < whole; c += kVector) store_lanes(scale * load_lanes(in + c), out + c);
    for (std::int64_t c = whole; c < part.cols; ++c) out[c] = scale * to_f32(in[c]);
    for (std::int64_t c = part.cols; c < stride; ++c) out[c] = 0;
  }
}

template <typename T>
void store_rows_of(const float* in, std::int64_t stride, const MutableMatrixView& view, const Part& part) {
  T* out = static_cast<T*>(view.data) + part.row * view.row_stride + part.col;
  const std::int64_t whole = part.cols / kVector * kVector;
  for (std::int64_t r = 0; r < part.rows; ++r, in += stride, out += view.row_stride) {
    for (std::int64_t c = 0; c < whole; c += kVector) store_lanes(load_lanes(in + c), out + c);
    for (std::int64_t c = whole; c < part.cols; ++c) assign(in[c], out[c]);
  }
}

}  // namespace

void load_rows(const MatrixView& view, const Part& part, float scale, float* out, std::int64_t stride) {
  if (view.dtype == DType::bf16)
    load_rows_of<Bf16>(view, part, scale, out, stride);
  else
    load_rows_of<float>(view, part, scale, out, stride);
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
  if (view.dtype == DType::bf16)
    store_rows_of<Bf16>(in, stride, view, part);
  else
    store_rows_of<float>(in, stride, view, part);
}

}  // namespace tetrad::cpu
