// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rotary position embedding, half-split ("rotate_half"): the pair (i, i + dim/2) of each head turns by
// position * frequency[i].

#include <cstdint>
#include <vector>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/documents.h"

namespace tetrad {

/// Long-context scaling of the frequencies as Llama 3.1 defines it.
struct RopeScaling {
  float factor = 8;
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  std::int64_t original_context = 8192;
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// frequency[i] = theta^(-2i/dim), scaled if asked for. [dim / 2]
std::vector<float> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling* scaling);

/// In place on the heads of one matrix (queries, keys, or both where they lie side by side).
struct Rope {
  MutableMatrixView x;  //!< [batch * sequence, heads * head_dim]
  std::int64_t sequence = 0;
  std::int64_t head_dim = 0;
  std::int64_t first_position = 0;                //!< position of row 0 of each sequence or document
  const float* frequencies = nullptr;             //!< [head_dim / 2]
  bool inverse = false;                           //!< the backward pass turns back
  const std::int32_t* document_starts = nullptr;  //!< documents.h: positions begin anew with each
};

/// Throws Error where x is not a batch of whole sequences of whole heads.
void check(const Rope& op);

}  // namespace tetrad
