// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which a backward pass has gradients ready, so that they can be sent to other ranks while it
// goes on, and their memory used again.

#include <cstddef>
#include <vector>

namespace tetrad {

/// Parameters whose gradients one part of the backward pass adds to, by their indices. The units of a model
/// are in the order in which they are complete: head and last norm, blocks from the last to the first,
/// embedding.
using GradientUnit = std::vector<std::size_t>;

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
