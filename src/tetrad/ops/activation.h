// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands between the two matrices of a feed-forward block.

#include <cstdint>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/amax.h"

namespace tetrad {

enum class Activation : std::uint8_t {
  swiglu,        //!< silu(gate) * up; the input is [gate | up], twice as wide as the output
  squared_relu,  //!< max(x, 0)^2
};

struct ActivationForward {
  Activation kind = Activation::swiglu;
  MatrixView x;                //!< [tokens, width * (swiglu ? 2 : 1)]
  MutableMatrixView y;         //!< [tokens, width]
  AmaxReport* amax = nullptr;  //!< where to report the amax of y; null: not wanted
};

struct ActivationBackward {
  Activation kind = Activation::swiglu;
  MatrixView x;
  MatrixView dy;
  MutableMatrixView dx;        //!< written; may lie where x does
  AmaxReport* amax = nullptr;  //!< where to report the amax of dx; null: not wanted
};

// Throw Error where views do not fit together.
void check(const ActivationForward& op);
void check(const ActivationBackward& op);

}  // namespace tetrad
