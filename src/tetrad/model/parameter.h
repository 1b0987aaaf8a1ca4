// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained tensor: f32 master weights and the f32 gradient that microbatches add to.

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/core/tensor.h"
#include "tetrad/model/parameter_table.h"

namespace tetrad {

struct Parameter {
  std::string name;                 //!< "blocks.3.qkv.weight"
  std::vector<std::int64_t> shape;  //!< what files say; the tensors below are [rows, cols] or [1, size]
  Tensor value;                     //!< f32
  Tensor gradient;                  //!< f32
  bool decay = true;                //!< weight decay applies
  bool is_linear = false;           //!< the weight of a linear layer
  Initial initial = Initial::normal;
  /// Counts changes of `value`, so that copies of it know when they are old; 0 is a copy that was never made.
  std::uint64_t version = 1;
};

}  // namespace tetrad
