// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run will cost, before anything is allocated.

#include <cstdint>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/model/config.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/model/recompute.h"
#include "tetrad/ops/memory.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

/// Floating-point operations for one token, forward and backward (a multiplication and an addition are two).
double training_flops_per_token(const ModelConfig& config, std::int64_t sequence);

/// How many of them are computed a second time. What only passes over memory is in neither.
double recomputed_flops_per_token(const ModelConfig& config, std::int64_t sequence,
                                  const RecomputePlan& recompute);

struct MemoryEstimate {
  double weights = 0;                      //!< f32 masters
  double gradients = 0;                    //!< f32
  double optimizer = 0;                    //!< two moments, but those on the host
  double operands = 0;                     //!< weights in the forms that products read
  double activations = 0;                  //!< kept from forward to backward, and what passes through
  double scratch = 0;                      //!< what operations hold for themselves
  double host = 0;                         //!< not on the device but on the host: moments; no part of total()
  std::vector<double> kept_by_block = {};  //!< of the activations, by the index of the block

  double total() const { return weights + gradients + optimizer + operands + activations + scratch; }
};

/// What decides about memory, besides the model and the recipe.
struct MemoryCase {
  std::int64_t batch;  //!< sequences of a microbatch
  std::int64_t sequence;
  DType storage = DType::bf16;
  RecomputePlan recompute = {};
  bool telemetry = false;
  bool document_mask = false;
  DType moments = DType::f32;     //!< those that moment_type() leaves so
  std::int64_t host_moments = 0;  //!< bytes
};

/// Bytes of all moments, if they are stored so.
std::int64_t moment_bytes(const ModelConfig& config, DType moments);

/// Bytes of moments that are on the host if at least `bytes` are to be: of whole tensors.
std::int64_t host_moments(const ModelConfig& config, DType moments, std::int64_t bytes);

/// The peak of a run on a backend with these traits: of the times between the switches of the recipe's
/// schedule, that which needs most.
MemoryEstimate estimate_memory(const ModelConfig& config, const Recipe& recipe, const MemoryCase& c,
                               const MemoryTraits& traits);

}  // namespace tetrad
