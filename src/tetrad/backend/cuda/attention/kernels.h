// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two families of attention kernels: on tensor cores (BF16, head_dim 64 or 128, aligned views, a positive
// scale), and for everything else. The operations have been checked.

#include <type_traits>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

/// Forward and decode are one problem: query i of a sequence sees its keys up to cached + i, from 0 or, if
/// there are documents, from its own document's first.
struct AttentionProblem {
  AttentionShape shape;
  std::int64_t cached;
  MatrixView q, k, v;
  MutableMatrixView out;
  float* log_sum_exp;                   //!< may be null
  const std::int32_t* document_starts;  //!< null, or [batch, sequence]

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

/// Calls body with the dimension of the heads, 64 or 128, whether warpgroups multiply, and whether there are
/// documents.
template <typename Op, typename Body>
void with_engine(const Device& device, const Op& op, const Body& body) {
  const auto with_documents = [&](auto dim, auto warpgroups) {
    if (op.document_starts == nullptr)
      body(dim, warpgroups, std::false_type{});
    else
      body(dim, warpgroups, std::true_type{});
  };
  const auto with_dim = [&](auto warpgroups) {
    if (op.shape.head_dim == 64)
      with_documents(std::integral_constant<int, 64>{}, warpgroups);
    else
      with_documents(std::integral_constant<int, 128>{}, warpgroups);
  };
  if (has_warpgroups(device))
    with_dim(std::true_type{});
  else
    with_dim(std::false_type{});
}

}  // namespace tetrad::cuda
