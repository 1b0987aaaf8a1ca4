// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of all ranks become their sum. Transports move parts of them, which are added in the order of
// ranks' tree: the sum is that of one rank with everybody's groups (ops/ordered_sum.h). Of a matrix that
// ranks share, each gets the sum of its own rows.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tetrad/model/parameter.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad {

class GradientReduction {
 public:
  GradientReduction(Backend& backend, Communicator& ranks,
                    const std::vector<std::unique_ptr<Parameter>>& parameters);

  /// Every rank's gradients become the sum of all, where it has the weights. All ranks call it.
  void reduce();

 private:
  /// Parameters that travel together, so that small ones do not travel alone.
  struct Bucket {
    std::size_t first = 0, last = 0;  //!< indices of parameters, the last one excluded
    std::size_t bytes = 0;            //!< that this rank receives
  };

  /// The elements of a parameter that a rank adds up, and their bytes.
  const RowBand& part_of(std::size_t parameter, int rank) const;
  std::span<std::byte> bytes_of(std::size_t parameter, int rank) const;
  std::vector<Exchange> exchanges(const Bucket& bucket, Buffer& received) const;
  void add(const Bucket& bucket, Buffer& received);
  std::vector<Gather> gathers(const Bucket& bucket) const;

  Backend& backend_;
  Communicator& ranks_;
  const std::vector<std::unique_ptr<Parameter>>& parameters_;
  std::vector<std::vector<RowBand>> parts_;  //!< by parameter and rank
  std::vector<Bucket> buckets_;
  Buffer received_[2];  //!< while one bucket is added up, the next is on its way
};

}  // namespace tetrad
