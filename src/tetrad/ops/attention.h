// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal attention with grouped queries: query head h reads key/value head h / (heads / kv_heads).
//
// softmax(q k^T * scale) v, with an online softmax over tiles of keys: the [sequence, sequence] matrix is
// never stored. Activations are BF16 or f32; scores, softmax and sums are f32. Views may be column ranges of
// wider matrices (queries, keys and values of one projection lie side by side).

#include <cstdint>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/documents.h"

namespace tetrad {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float scale = 0;  //!< usually 1/sqrt(head_dim)
};

struct AttentionForward {
  AttentionShape shape;
  MatrixView q;                  //!< [batch * sequence, heads * head_dim]
  MatrixView k, v;               //!< [batch * sequence, kv_heads * head_dim]
  MutableMatrixView out;         //!< like q
  float* log_sum_exp = nullptr;  //!< [batch, heads, sequence], for the backward pass; null: not wanted
  const std::int32_t* document_starts = nullptr;  //!< documents.h
};

struct AttentionBackward {
  AttentionShape shape;
  MatrixView q, k, v, out;
  const float* log_sum_exp = nullptr;
  MatrixView dout;
  MutableMatrixView dq, dk, dv;                   //!< written
  const std::int32_t* document_starts = nullptr;  //!< documents.h
  bool by_parts = false;  //!< fewer heads at a time, where each needs memory; the same bits
};

/// New tokens at the end of one cached sequence: token i sees cache rows 0 … cached + i.
struct AttentionDecode {
  AttentionShape shape;  //!< batch 1; sequence = number of new tokens
  std::int64_t cached = 0;
  MatrixView q;     //!< [sequence, heads * head_dim]
  MatrixView k, v;  //!< [cached + sequence, kv_heads * head_dim]: the new rows are already in the cache
  MutableMatrixView out;
};

/// Kernels that may serve attention side by side.
enum class AttentionEngine : std::uint8_t {
  best,                 //!< what the backend chooses for the shape
  own,                  //!< its own
  library,              //!< a library's
  unrepeatable_library  //!< the library's fastest, whose gradients differ from run to run: a ceiling, not for
                        //!< training
};

// Throw Error where views do not fit the shape. head_dim is even and at most 256.
void check(const AttentionForward& op);
void check(const AttentionBackward& op);
void check(const AttentionDecode& op);

}  // namespace tetrad
