// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two directions of the scan share: the cut into chunks, and the decays within one.

#include <cstdint>

#include "tetrad/backend/cpu/rows.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/mamba2.h"

namespace tetrad::cpu {

/// A task: one chunk of one sequence, and the heads of one group, which share B and C.
struct ChunkTask {
  std::int64_t batch, chunk, group;
  std::int64_t time;         //!< the first token's, in its sequence
  std::int64_t row;          //!< first row in the activations
  std::int64_t length;       //!< tokens
  std::int64_t head, heads;  //!< of the group
  bool is_first, is_last;    //!< chunk of the sequence

  /// `index` counts groups, then chunks, then sequences.
  ChunkTask(const Mamba2Shape& shape, std::int64_t index);

  Part rows_of_head(std::int64_t of_head, std::int64_t head_dim) const {
    return {row, length, of_head * head_dim, head_dim};
  }
  Part rows_of_group(std::int64_t state) const { return {row, length, group * state, state}; }

  /// Where numbers of one (sequence, chunk, head) lie.
  std::int64_t index_of(const Mamba2Shape& shape, std::int64_t of_head) const {
    return (batch * shape.chunks() + chunk) * shape.heads + of_head;
  }
};

std::int64_t chunk_tasks(const Mamba2Shape& shape);

/// Time steps and decays of one head over a chunk of L tokens. Products of decays, not differences of their
/// logarithms: a huge step would take the digits of the small ones after it.
struct ChunkSteps {
  float* raw;     //!< [L] with dt_bias: what softplus is taken of
  float* dt;      //!< [L], zeros up to a multiple of kVector
  float* decay;   //!< [L] exp(dt * a); 0 where a document begins
  float* prefix;  //!< [L] product of decays 0 … t: what is left of the state before the chunk
  float* suffix;  //!< [L] product of decays t + 1 … L - 1: what reaches the state after the chunk

  /// Elements of Scratch for chunks of up to `length` tokens.
  static std::int64_t size(std::int64_t length);
  ChunkSteps(Scratch& scratch, std::int64_t length);

  void compute(const ScanInputs& in, const ChunkTask& task, std::int64_t head, float a) const;
};

/// -exp(A_log).
float decay_rate(const ScanInputs& in, std::int64_t head);

/// out[r] = factors[r] * in[r], for rows of `width` elements.
void scale_rows(const float* in, const float* factors, std::int64_t rows, std::int64_t width, float* out);

/// states[c] += total_decay * states[c - step] along a sequence's chunks, for every (sequence, head), from
/// chunk `first` in steps of +1 or -1. `total_decay` is that of chunk c - 1 forwards and c + 1 backwards: the
/// chunk between the two states.
enum class Direction : std::int8_t { forwards = 1, backwards = -1 };
void pass_states(Threads& threads, const Mamba2Shape& shape, Direction direction, const float* total_decay,
                 float* states);

}  // namespace tetrad::cpu
