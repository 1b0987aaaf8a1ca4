// SPDX-License-Identifier: Apache-2.0
#pragma once
// RMSNorm, y = x / rms(x) * weight, over whole rows; and the gated norm over groups that ends a Mamba-2
// mixer.
//
// Activations are BF16 or f32; arithmetic and reductions are f32.

#include "tetrad/core/matrix.h"

namespace tetrad {

struct RmsNormForward {
  MatrixView x;                   //!< [tokens, width]
  const float* weight = nullptr;  //!< [width]
  float epsilon = 1e-5f;
  MutableMatrixView y;           //!< [tokens, width]
  float* inverse_rms = nullptr;  //!< [tokens], kept for the backward pass
};

struct RmsNormBackward {
  MatrixView x;
  const float* weight = nullptr;
  const float* inverse_rms = nullptr;
  MatrixView dy;
  MutableMatrixView dx;      //!< added to: the gradient of the residual stream
  float* dweight = nullptr;  //!< added to
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

// Throw Error where views do not fit together, or groups do not divide the width.
void check(const RmsNormForward& op);
void check(const RmsNormBackward& op);
void check(const GatedNormForward& op);
void check(const GatedNormBackward& op);

}  // namespace tetrad
