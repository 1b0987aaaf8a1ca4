// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained tensor: f32 master weights and the f32 gradient that microbatches add to. Ranks may share the
// weights of a matrix: each has a band of its rows. They may share its gradient too: each then has all of it
// only while the backward pass is there.

#include <cstdint>
#include <string>
#include <vector>

#include "tetrad/core/tensor.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad {

class WeightShards;

struct Parameter {
  std::string name;                 //!< "blocks.3.qkv.weight"
  std::vector<std::int64_t> shape;  //!< what files say; the tensors below are [rows, cols] or [1, size]
  Tensor value;                     //!< f32; of a shared matrix, the rows of `band`
  Tensor gradient;                  //!< f32, all rows; in memory of others too, where gradients are shared
  Tensor gradient_sum;              //!< of those rows that `value` has, where they are; else empty
  std::vector<RowBand> pieces;      //!< of a matrix that ranks may share; empty: none of those
  RowBand band;                     //!< rows that this rank has: all of them unless `shards`
  WeightShards* shards = nullptr;   //!< who makes the whole of what ranks have; null: this rank has it
  bool decay = true;                //!< weight decay applies
  bool is_linear = false;           //!< the weight of a linear layer
  Initial initial = Initial::normal;
  /// Counts changes of `value`, so that copies of it know when they are old; 0 is a copy that was never made.
  std::uint64_t version = 1;

  std::int64_t rows() const { return gradient.rows(); }
  std::int64_t cols() const { return gradient.cols(); }
  /// Elements of the whole that come before those of `value`.
  std::int64_t first_element() const { return band.first * cols(); }
  /// Where the gradient of a step is once it is summed up: from this row of `band` on.
  float* summed_gradient(std::int64_t row) {
    return gradient_sum.size() > 0 ? gradient_sum.f32() + (row - band.first) * cols()
                                   : gradient.f32() + row * cols();
  }
};

}  // namespace tetrad
