// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a model does to need less memory of a device, besides having a smaller microbatch. The results are the
// same to the bit.

#include "tetrad/model/recompute.h"

namespace tetrad {

struct MemoryLevers {
  RecomputePlan recompute = {};
  bool weights_as_codes = false;    //!< weights in four bits are kept so, and expanded for each product
  bool residual_on_host = false;    //!< the inputs of blocks are there between forward and backward
  bool attention_by_parts = false;  //!< gradients of attention are computed for fewer heads at a time
  /// For evaluating and generating alone: there is no memory for gradients, nor for what they need of a
  /// forward pass; and weights, which stay as they are, may be packed for products.
  bool reads_only = false;
};

}  // namespace tetrad
