// SPDX-License-Identifier: Apache-2.0
#include "oracle/attention.h"

#include <algorithm>
#include <cmath>

namespace tetrad::oracle {

std::vector<double> attention(const AttentionSizes& sizes, const std::vector<double>& q,
                              const std::vector<double>& k, const std::vector<double>& v,
                              std::vector<double>* log_sum_exp,
                              const std::vector<std::int32_t>& document_starts) {
  const auto index = [&](long b, long t, long heads, long h) {
    return static_cast<std::size_t>(((b * sizes.sequence + t) * heads + h) * sizes.head_dim);
  };
  std::vector<double> out(q.size(), 0.0);
  if (log_sum_exp != nullptr) log_sum_exp->clear();
  for (long b = 0; b < sizes.batch; ++b)
    for (long h = 0; h < sizes.heads; ++h)
      for (long t = 0; t < sizes.sequence; ++t) {
        const long kv = h * sizes.kv_heads / sizes.heads;
        const double* query = &q[index(b, t, sizes.heads, h)];
        const long first =
            document_starts.empty() ? 0 : document_starts[static_cast<std::size_t>(b * sizes.sequence + t)];
        std::vector<double> scores;
        for (long s = first; s <= t; ++s) {
          const double* key = &k[index(b, s, sizes.kv_heads, kv)];
          double score = 0;
          for (long i = 0; i < sizes.head_dim; ++i) score += query[i] * key[i];
          scores.push_back(score * sizes.scale);
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - largest);
        for (long s = first; s <= t; ++s)
          for (long i = 0; i < sizes.head_dim; ++i)
            out[index(b, t, sizes.heads, h) + static_cast<std::size_t>(i)] +=
                scores[static_cast<std::size_t>(s - first)] / sum *
                v[index(b, s, sizes.kv_heads, kv) + static_cast<std::size_t>(i)];
        if (log_sum_exp != nullptr) log_sum_exp->push_back(largest + std::log(sum));
      }
  return out;
}

}  // namespace tetrad::oracle
