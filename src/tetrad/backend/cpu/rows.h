// SPDX-License-Identifier: Apache-2.0
#pragma once
// Activations, F32 or BF16 in rows, to f32 tiles and back.

#include <cstdint>

#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/matrix.h"

namespace tetrad::cpu {

/// A rectangle of a matrix.
struct Part {
  std::int64_t row, rows, col, cols;
};

/// The rectangle times `scale`, in rows of `stride` elements whose rest is filled with zeros. Rows up to a
/// multiple of kVector are filled with zeros too: `out` has padded(rows) of them.
void load_rows(const MatrixView& view, const Part& part, float scale, float* out, std::int64_t stride);

/// in[rows, cols] to out[cols, rows]; both extents are multiples of 8.
void transpose_tile(const float* in, std::int64_t rows, std::int64_t cols, std::int64_t in_stride, float* out,
                    std::int64_t out_stride);

/// Writes `part` of the view from rows of `stride` elements.
void store_rows(const float* in, std::int64_t stride, const MutableMatrixView& view, const Part& part);

/// Hands out pieces of one thread's workspace, each aligned to 64 bytes.
class Scratch {
 public:
  Scratch(Buffer& buffer, std::int64_t elements) : next_(workspace(buffer, elements)) {}

  /// `elements` is a multiple of kVector.
  float* take(std::int64_t elements) {
    float* piece = next_;
    next_ += elements;
    return piece;
  }

 private:
  float* next_;
};

}  // namespace tetrad::cpu
