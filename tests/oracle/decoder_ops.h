// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the operations of a decoder compute, in double precision, from their formulas alone.
//
// Matrices are row-major vectors. Plain on purpose; shares no code with src/.

#include <cstdint>
#include <vector>

namespace tetrad::oracle {

using Values = std::vector<double>;

/// x / sqrt(mean(x^2) + epsilon) * weight for each row.
Values rms_norm(const Values& x, const Values& weight, double epsilon);

/// u = y * silu(z); u / sqrt(mean(u^2 over its group) + epsilon) * weight.
Values gated_norm(const Values& y, const Values& z, const Values& weight, long groups, double epsilon);

/// Llama 3's scaling of long wavelengths.
struct RopeStretch {
  double factor;
  double low;
  double high;
  double context;
};

/// theta^(-2i/dim); `stretch` may be null.
Values rope_frequencies(long head_dim, double theta, const RopeStretch* stretch);

/// Turns the pair (i, i + dim/2) of each head by position * frequency[i]; row r stands at
/// first_position + r % sequence, less the start of its document if there are any.
Values rope(const Values& x, long width, long sequence, long first_position, const Values& frequencies,
            bool inverse, const std::vector<std::int32_t>& document_starts = {});

/// silu(gate) * up; each row is [gate | up].
Values swiglu(const Values& x, long width);
Values squared_relu(const Values& x);

/// -log softmax(head . hidden)[target] of each token; a negative target gives 0.
Values cross_entropy(const Values& hidden, const Values& head, const std::vector<std::int32_t>& targets,
                     long width);

/// One parameter tensor under AdamW.
struct AdamW {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double decay;
  Values weight;
  Values first = Values(weight.size());
  Values second = Values(weight.size());
  long steps = 0;

  void step(const Values& gradient);
};

}  // namespace tetrad::oracle
