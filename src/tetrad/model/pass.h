// SPDX-License-Identifier: Apache-2.0
#pragma once
// One pass over one microbatch: what every layer must know about where in the run it is, and where it leaves
// what it noticed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/core/trace.h"
#include "tetrad/model/gradient_units.h"
#include "tetrad/ops/backend.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad {

/// What a quantizer saw, for metrics.jsonl.
struct OperandStats {
  std::string layer;
  Operand operand;
  QuantStats stats;
};

struct Pass {
  const Recipe* recipe = nullptr;
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t microbatch = 0;
  std::uint32_t draw = 0;  //!< LinearKey::draw
  double progress = 0;     //!< fraction of the token budget
  float z_loss = 0;        //!< CrossEntropy::z_loss
  Trace* trace = nullptr;
  GradientListener* gradients = nullptr;  //!< told of the backward pass; null: nobody is
  bool training = false;                  //!< keep what the backward pass needs
  bool again = false;  //!< part of a forward pass is repeated: nothing is noted a second time
  bool telemetry = false;
  bool telemetry_in_step = false;  //!< in some pass of this step, of any rank
  bool every_element = false;      //!< behind the telemetry, instead of a sample
  // Set by the decoder:
  const std::int32_t* document_starts = nullptr;  //!< of the microbatch (ops/documents.h)
  std::vector<std::int64_t> stack;  //!< rows of each sequence, where several are read in one pass

  std::vector<OperandStats> stats;        //!< if `telemetry`
  std::optional<std::string> non_finite;  //!< the layer and operand that first had a value that is not finite
};

}  // namespace tetrad
