// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal attention as graphs of cuDNN. Its engines know attention by the shape of the graph: products,
// softmax and mask written out operation by operation, as below, become one kernel.

#include <cstdint>
#include <tuple>

#include "tetrad/backend/cuda/attention/cudnn_graph.h"

namespace tetrad::cuda {

/// What a plan is made for. Of each tensor the stride from one token to the next, in elements.
struct AttentionGraphShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float scale = 0;
  bool deterministic = true;  //!< false: dQ may be summed in any order; only to measure what that costs
  std::int64_t q = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
  std::int64_t out = 0;
  std::int64_t dout = 0;  //!< from here on only in the backward pass
  std::int64_t dq = 0;
  std::int64_t dk = 0;
  std::int64_t dv = 0;

  auto key() const {
    return std::tie(batch, sequence, heads, kv_heads, head_dim, scale, deterministic, q, k, v, out, dout, dq,
                    dk, dv);
  }
  bool operator<(const AttentionGraphShape& other) const { return key() < other.key(); }
  bool operator==(const AttentionGraphShape& other) const { return key() == other.key(); }
};

/// The tensors that an execution must place. Softmax's statistics are one f32 per head and token.
enum AttentionTensor : std::int64_t {
  q_tensor = 1,
  k_tensor,
  v_tensor,
  out_tensor,
  log_sum_exp_tensor,
  dout_tensor,
  dq_tensor,
  dk_tensor,
  dv_tensor,
  delta_tensor,   //!< f32 [batch, heads, sequence]: sums of out * dout
  dq_sum_tensor,  //!< f32 [batch, heads, sequence, head_dim]; not where it is deterministic
};

CudnnGraph attention_forward_graph(const AttentionGraphShape& shape);
CudnnGraph attention_backward_graph(const AttentionGraphShape& shape);

}  // namespace tetrad::cuda
