// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm, y = x / rms(x) * weight, over whole rows or over each head of a row; and the gated norm over
// groups that ends a Mamba-2 mixer.
//
// Activations are BF16 or f32; arithmetic and reductions are f32.

#include "tetrad/core/matrix.h"
#include "tetrad/ops/accumulate.h"

namespace tetrad {

struct RmsNormForward {
  MatrixView x;                   //!< [tokens, heads * width]
  const float* weight = nullptr;  //!< [width]: the heads of a row share it
  float epsilon = 1e-5f;
  MutableMatrixView y;           //!< like x, which it may be
  float* inverse_rms = nullptr;  //!< [tokens, heads], kept for the backward pass
  std::int64_t heads = 1;        //!< vectors of a row, each with a norm of its own
};

struct RmsNormBackward {
  MatrixView x;
  const float* weight = nullptr;
  const float* inverse_rms = nullptr;
  MatrixView dy;
  MutableMatrixView dx;      //!< added to, as the gradient of the residual stream is; or written
  float* dweight = nullptr;  //!< added to
  std::int64_t heads = 1;
  Accumulate accumulate = Accumulate::yes;  //!< no: dx is written, and may be dy
};

/// u = y * silu(z); out = u / rms(u over its group) * weight.
struct GatedNormForward {
  MatrixView y;  //!< [tokens, width]
  MatrixView z;  //!< [tokens, width]
  const float* weight = nullptr;
  std::int64_t groups = 1;
  float epsilon = 1e-5f;
  MutableMatrixView out;
  float* inverse_rms = nullptr;  //!< [tokens, groups]
};

struct GatedNormBackward {
  MatrixView y;
  MatrixView z;
  const float* weight = nullptr;
  std::int64_t groups = 1;
  const float* inverse_rms = nullptr;
  MatrixView dout;
  MutableMatrixView dy;      //!< written
  MutableMatrixView dz;      //!< written
  float* dweight = nullptr;  //!< added to
};

// Throw Error where views do not fit together, or heads or groups do not divide the width.
void check(const RmsNormForward& op);
void check(const RmsNormBackward& op);
void check(const GatedNormForward& op);
void check(const GatedNormBackward& op);

}  // namespace tetrad
