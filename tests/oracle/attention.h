// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal attention with grouped queries as its definition says, in double precision, every score in memory.

#include <cstdint>
#include <vector>

namespace tetrad::oracle {

struct AttentionSizes {
  long batch, sequence, heads, kv_heads, head_dim;
  double scale;
};

/// q [batch, sequence, heads, head_dim], k and v [batch, sequence, kv_heads, head_dim]; the result is like q.
/// `log_sum_exp`, if given, gets [batch, heads, sequence]. `document_starts` [batch, sequence]: the first key
/// that each query sees; none: the sequence's first.
std::vector<double> attention(const AttentionSizes& sizes, const std::vector<double>& q,
                              const std::vector<double>& k, const std::vector<double>& v,
                              std::vector<double>* log_sum_exp = nullptr,
                              const std::vector<std::int32_t>& document_starts = {});

}  // namespace tetrad::oracle
