// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW with decoupled weight decay, and the norm that clipping needs. Everything is f32; sums of squares are
// f64 in a fixed order.

#include <cstdint>
#include <span>
#include <vector>

namespace tetrad {

/// One parameter tensor as the optimizer sees it.
struct AdamWTensor {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  std::int64_t size = 0;
  bool decay = true;             //!< matrices yes; norms, biases and the scan's parameters no
  bool moments_on_host = false;  //!< they lie in memory of Backend::allocate_on_host()
};

/// How a device reaches moments on the host. Both give the same bits.
enum class HostMoments : std::uint8_t {
  staged,  //!< copied to the device and back, piece by piece
  mapped,  //!< read and written where they are
};

/// How the moments of tensors of these sizes (elements) are shared out if at least `bytes` of them are to be
/// on the host: true for those that are. Whole tensors, in the order of the list, small ones never: the
/// results do not depend on it.
std::vector<bool> moments_on_host(std::span<const std::int64_t> sizes, std::int64_t bytes);

/// Bytes of the two moments of a tensor.
constexpr std::int64_t moment_bytes(std::int64_t size) {
  return 2 * size * static_cast<std::int64_t>(sizeof(float));
}

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
