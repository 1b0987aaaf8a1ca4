// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementary functions of f32, the formulas of backend/cpu/math.h: a few ulp over the whole range, with the
// digits of small results kept.

namespace tetrad::cuda {

/// 1 / (1 + e^-x).
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/// x * sigmoid(x).
__device__ inline float silu(float x) { return x * sigmoid(x); }

/// silu and its derivative, which share an exponential.
struct SiluWithGradient {
  float value, gradient;
};
__device__ inline SiluWithGradient silu_with_gradient(float x) {
  // s + x * s * (1 - s), with 1 - s from its own formula: x would magnify a difference's error
  const float e = expf(-fabsf(x));
  const float larger = 1.0f / (1.0f + e);
  const float smaller = e * larger;
  const float s = x < 0 ? smaller : larger;
  return {x * s, s + x * (larger * smaller)};
}

/// log(1 + e^x); its derivative is sigmoid(x).
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

/// max(x, 0), but NaN stays NaN.
__device__ inline float positive_part(float x) { return x < 0.0f ? 0.0f : x; }

}  // namespace tetrad::cuda
