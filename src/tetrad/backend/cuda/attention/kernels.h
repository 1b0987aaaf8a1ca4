// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two families of attention kernels: on tensor cores (BF16, head_dim 64 or 128, aligned views, a positive
// scale), and for everything else. The operations have been checked.

#include <type_traits>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

/// Forward and decode are one problem: query i of a sequence sees its keys 0 … cached + i.
struct AttentionProblem {
  AttentionShape shape;
  std::int64_t cached;
  MatrixView q, k, v;
  MutableMatrixView out;
  float* log_sum_exp;  //!< may be null

  std::int64_t keys() const { return cached + shape.sequence; }
};

void attention_on_tensor_cores(Device& device, const AttentionProblem& problem);
void attention_on_tensor_cores(Device& device, const AttentionBackward& op);

void attention_of_any_shape(Device& device, const AttentionProblem& problem);
void attention_of_any_shape(Device& device, const AttentionBackward& op);

/// Whether warpgroups multiply: on a device that can, where the build has kernels for it (90a).
inline bool has_warpgroups(const Device& device) {
#ifdef TETRAD_WARPGROUPS
  return device.properties().major == 9;
#else
  static_cast<void>(device);
  return false;
#endif
}

/// Calls body with the dimension of the heads, 64 or 128, and whether warpgroups multiply.
template <typename Body>
void with_engine(const Device& device, const AttentionShape& shape, const Body& body) {
  const auto with_dim = [&](auto warpgroups) {
    if (shape.head_dim == 64)
      body(std::integral_constant<int, 64>{}, warpgroups);
    else
      body(std::integral_constant<int, 128>{}, warpgroups);
  };
  if (has_warpgroups(device))
    with_dim(std::true_type{});
  else
    with_dim(std::false_type{});
}

}  // namespace tetrad::cuda
