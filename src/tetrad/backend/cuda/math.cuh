#pragma once
// Functions of activations, as backend/cpu/math.h has them.

namespace tetrad::cuda {

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float silu_gradient(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
/// max(x, 0), but NaN stays NaN.
__device__ inline float positive_part(float x) { return x < 0.0f ? 0.0f : x; }

}  // namespace tetrad::cuda
