// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which a backward pass has gradients ready, so that they can be sent to other ranks while it
// goes on, and their memory used again.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tetrad/model/config.h"

namespace tetrad {

/// Parameters whose gradients one part of the backward pass adds to, by their indices.
using GradientUnit = std::vector<std::size_t>;

/// In the order in which they are complete: head and last norm, blocks from the last to the first, embedding.
std::vector<GradientUnit> units_of_backward_pass(const ModelConfig& config);

/// Bytes of the memory of a gradient, from one that products like to the next.
std::size_t gradient_bytes(std::int64_t elements);

/// Memory of whole gradients where ranks share them: units take turns, so that what is complete can be sent
/// from one while the next is computed in another.
struct GradientTurns {
  std::vector<std::size_t> bytes;      //!< of each memory
  std::vector<std::size_t> memory_of;  //!< of each unit, the index of its memory
};
/// `elements`: of each parameter.
GradientTurns gradient_turns(const ModelConfig& config, const std::vector<GradientUnit>& units,
                             std::span<const std::int64_t> elements);

/// Is told of a backward pass as it goes.
class GradientListener {
 public:
  GradientListener() = default;
  GradientListener(const GradientListener&) = delete;
  GradientListener& operator=(const GradientListener&) = delete;
  virtual ~GradientListener() = default;

  /// Operations from here on add to the gradients of this unit …
  virtual void begin_unit(std::size_t unit) = 0;
  /// … and those from here on do not.
  virtual void end_unit(std::size_t unit) = 0;
};

}  // namespace tetrad
