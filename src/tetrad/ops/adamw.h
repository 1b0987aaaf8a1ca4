// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with decoupled weight decay, and the norm that clipping needs. Everything is f32; sums of squares are
// f64 in a fixed order.

#include <cstdint>
#include <span>

namespace tetrad {

/// One parameter tensor as the optimizer sees it.
struct AdamWTensor {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  std::int64_t size = 0;
  bool decay = true;  //!< matrices yes; norms, biases and the scan's parameters no
};

struct AdamWStep {
  std::span<const AdamWTensor> tensors;
  std::int64_t step = 1;  //!< from 1, for bias correction
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;
  float gradient_scale = 1;  //!< from clipping
};

}  // namespace tetrad
