// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention on tensor cores, backward. Scores are computed again from log_sum_exp, twice: a block either owns
// keys and walks over queries (dk, dv), or owns queries and walks over keys (dq). So every sum is one
// thread's and has a fixed order.

#include "tetrad/backend/cuda/attention/engine.cuh"
#include "tetrad/backend/cuda/attention/kernels.h"
#include "tetrad/backend/cuda/common/element.cuh"

namespace tetrad::cuda {

struct BackwardParameters {
  int sequence;
  int heads, kv_heads;
  int group;  //!< query heads of one key/value head
  int pairs;  //!< batch times the heads that blocks are made for
  float scale;
  View<const Bf16> q, k, v, out, dout;
  View<Bf16> dq, dk, dv;
  const float* log_sum_exp;             //!< [batch, heads, sequence]
  float* delta;                         //!< dout . out, like it
  const std::int32_t* document_starts;  //!< null, or [batch, sequence]
};

template <int kDim, bool kWarpgroups, bool kDocuments>
void differentiate_keys(Device& device, const AttentionShape& shape, BackwardParameters p);
template <int kDim, bool kWarpgroups, bool kDocuments>
void differentiate_queries(Device& device, const AttentionShape& shape, BackwardParameters p);

}  // namespace tetrad::cuda
