// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much memory a run will take, before anything is allocated.

#include <array>
#include <cstdint>
#include <vector>

#include "tetrad/core/dtype.h"
#include "tetrad/model/config.h"
#include "tetrad/model/memory_levers.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/model/recompute.h"
#include "tetrad/model/zero.h"
#include "tetrad/ops/memory.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

struct MemoryEstimate {
  double weights = 0;                      //!< f32 masters
  double gradients = 0;                    //!< f32
  double optimizer = 0;                    //!< two moments, but those on the host
  double operands = 0;                     //!< weights in the forms that products read
  double activations = 0;                  //!< kept from forward to backward, and what passes through
  double scratch = 0;                      //!< what operations hold for themselves
  double exchange = 0;                     //!< gradients on their way between ranks
  double moments_on_host = 0;              //!< not on the device, like the next: no part of total()
  double residual_on_host = 0;             //!< inputs of blocks
  std::vector<double> kept_by_block = {};  //!< of the activations, by the index of the block

  double total() const {
    return weights + gradients + optimizer + operands + activations + scratch + exchange;
  }
  double host() const { return moments_on_host + residual_on_host; }
};

/// What decides about memory, besides the model and the recipe.
struct MemoryCase {
  std::int64_t batch;  //!< sequences of a microbatch
  std::int64_t sequence;
  DType storage = DType::bf16;
  int waiting_gradients = 0;         //!< copies of the gradients besides those that microbatches add to
  int ranks = 1;                     //!< this is one of those
  std::int64_t zero = 0;             //!< what they share (parallel.zero)
  bool groups_travel_alone = false;  //!< then only what a rank adds up waits
  std::int64_t exchange = 0;         //!< bytes
  MemoryLevers levers = {};
  bool telemetry = false;
  bool document_mask = false;
  DType moments = DType::f32;     //!< those that moment_type() leaves so
  std::int64_t host_moments = 0;  //!< bytes

  bool shares(std::int64_t from_zero) const { return ranks > 1 && zero >= from_zero; }
  /// Ranks that share weights and moments.
  int shards() const { return shares(kSharesWeights) ? ranks : 1; }
};

struct ParameterSize {
  std::int64_t elements;
  bool is_linear;
  bool may_be_shared;  //!< by ranks
};
std::vector<ParameterSize> parameter_sizes(const ModelConfig& config);

/// Bytes of all moments, if they are stored so.
std::int64_t moment_bytes(const std::vector<ParameterSize>& parameters, DType moments);

/// Predicts what a model needs on a backend with these traits, in many cases: what they have in common is
/// looked up once. Refers to what it is made from.
class MemoryEstimator {
 public:
  MemoryEstimator(const ModelConfig& config, const Recipe& recipe, const MemoryTraits& traits);

  /// The peak of a run: of the times between the switches of the recipe's schedule, that which needs most.
  MemoryEstimate estimate(const MemoryCase& c) const;

  /// Bytes of moments that are on the host if at least `bytes` are to be: of whole tensors, or all that this
  /// rank has of them.
  std::int64_t host_moments(DType moments, std::int64_t bytes, int shards = 1) const;

 private:
  /// Blocks of the same letter and precision, which need the same if they keep the same.
  struct BlockKind {
    char letter;
    std::array<const LinearPrecision*, 2> precisions;  //!< of its linear layers
    std::vector<LinearShape> linears;
    std::int64_t count = 0;
  };
  /// The time between two switches.
  struct Phase {
    std::vector<BlockKind> kinds;
    std::vector<std::size_t> kind_of_block;  //!< index into those
  };

  Phase make_phase(const Recipe& recipe, double progress) const;
  MemoryEstimate estimate_in(const Phase& phase, const MemoryCase& c) const;
  double gradients(const std::vector<ParameterSize>& own, const MemoryCase& c) const;
  // Weights in the forms that products read: if each has its own memory, or if they take turns.
  double all_forms(const Phase& phase, const MemoryCase& c) const;
  double passing_forms(const Phase& phase, const MemoryCase& c) const;
  double gathered_masters(const Phase& phase, const MemoryCase& c) const;

  const ModelConfig& config_;
  const MemoryTraits& traits_;
  std::vector<ParameterSize> parameters_;
  std::vector<Phase> phases_;
};

/// The estimate of one case.
MemoryEstimate estimate_memory(const ModelConfig& config, const Recipe& recipe, const MemoryCase& c,
                               const MemoryTraits& traits);

}  // namespace tetrad
