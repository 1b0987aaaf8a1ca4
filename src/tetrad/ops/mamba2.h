// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Mamba-2 mixer between its two projections: causal depthwise convolution, selective scan. (The gated
// norm is in norm.h.)
//
//   dt    = softplus(dt_raw + dt_bias)              a = -exp(A_log), per head
//   state = state * exp(dt * a) + dt * (x outer B)    [head_dim, state] for each head
//   y     = state . C + D * x
//
// Nothing of the state is left at the first token of a document. B and C belong to groups: head h uses group
// h / (heads / groups). Activations are BF16 or f32; state, decays and sums are f32. The scan works on chunks
// and passes the state between them, so its cost is linear in the sequence and most of it is matrix products.

#include <cstdint>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/documents.h"

namespace tetrad {

struct Mamba2Shape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t groups = 0;
  std::int64_t state = 0;  //!< per channel
  std::int64_t chunk = 64;

  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t conv_channels() const { return inner() + 2 * groups * state; }
  std::int64_t chunks() const { return (sequence + chunk - 1) / chunk; }
};

/// out[t] = silu(bias + sum_j weight[j] * x[t - kernel + 1 + j]) for each channel, zeros before the
/// document.
struct CausalConvForward {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t kernel = 4;
  MatrixView x;                   //!< [batch * sequence, channels]
  const float* weight = nullptr;  //!< [channels, kernel]
  const float* bias = nullptr;    //!< [channels]
  MutableMatrixView out;
  const std::int32_t* document_starts = nullptr;  //!< documents.h
};

struct CausalConvBackward {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  std::int64_t kernel = 4;
  MatrixView x;
  const float* weight = nullptr;
  const float* bias = nullptr;
  MatrixView dout;
  MutableMatrixView dx;      //!< written
  float* dweight = nullptr;  //!< added to
  float* dbias = nullptr;    //!< added to
  const std::int32_t* document_starts = nullptr;
};

/// What the scan reads.
struct ScanInputs {
  MatrixView x;                    //!< [batch * sequence, heads * head_dim]
  MatrixView b, c;                 //!< [batch * sequence, groups * state]
  MatrixView dt;                   //!< [batch * sequence, heads], raw
  const float* dt_bias = nullptr;  //!< [heads]
  const float* a_log = nullptr;    //!< [heads]
  const float* d = nullptr;        //!< [heads]
  const std::int32_t* document_starts = nullptr;
};

struct ScanForward {
  Mamba2Shape shape;
  ScanInputs in;
  MutableMatrixView y;  //!< [batch * sequence, heads * head_dim]
  /// [batch, chunks, heads, head_dim, state]: the state *before* each chunk, for the backward pass; null: not
  /// wanted.
  float* chunk_states = nullptr;
};

struct ScanBackward {
  Mamba2Shape shape;
  ScanInputs in;
  const float* chunk_states = nullptr;
  MatrixView dy;
  MutableMatrixView dx, db, dc, ddt;  //!< written
  float* ddt_bias = nullptr;          //!< added to, like the two below
  float* da_log = nullptr;
  float* dd = nullptr;
};

/// One new token of one sequence: convolution and recurrence, with their state. The convolution's result is
/// rounded to the activations' type, as it is on its way from causal_conv() to scan().
struct Mamba2Step {
  Mamba2Shape shape;  //!< batch 1, sequence 1
  std::int64_t kernel = 4;
  MatrixView xbc;  //!< [1, conv_channels], before the convolution
  MatrixView dt;   //!< [1, heads], raw
  const float* conv_weight = nullptr;
  const float* conv_bias = nullptr;
  const float* dt_bias = nullptr;
  const float* a_log = nullptr;
  const float* d = nullptr;
  float* conv_state = nullptr;  //!< [kernel - 1, conv_channels], the inputs before this one, oldest first;
                                //!< updated, like the state below
  float* ssm_state = nullptr;   //!< [heads, head_dim, state]
  MutableMatrixView y;          //!< [1, inner]
};

// Throw Error where views do not fit the shape.
void check(const CausalConvForward& op);
void check(const CausalConvBackward& op);
void check(const ScanForward& op);
void check(const ScanBackward& op);
void check(const Mamba2Step& op);

}  // namespace tetrad
