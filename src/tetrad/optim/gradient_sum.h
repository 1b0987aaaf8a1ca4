// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of a step, from microbatches to the sum of all groups of all ranks: each unit of a backward
// pass goes on its way as soon as it is complete.
//
// Groups travel in one of two ways, with the same sums. Together: a rank has neighbouring groups, adds them
// up itself, and sends their sum. Alone: ranks take the groups in turns and send each as it is, which is more
// to send, but leaves nobody with more than its own rows, and lets each group be rounded by itself.

#include <cstdint>
#include <memory>
#include <vector>

#include "tetrad/model/gradient_units.h"
#include "tetrad/model/parameter.h"
#include "tetrad/optim/gradient_groups.h"
#include "tetrad/optim/gradient_reduction.h"

namespace tetrad {

/// How the groups of a step are dealt to ranks.
struct GroupDeal {
  std::int64_t groups = 1;
  int ranks = 1;
  bool travel_alone = false;

  std::int64_t of_each() const { return groups / ranks; }
  int rank_of(std::int64_t group) const {
    return static_cast<int>(travel_alone ? group % ranks : group / of_each());
  }
  /// Whether the sums are those of one rank with all groups.
  bool keeps_order() const;
};

class GradientSum final : public GradientListener {
 public:
  GradientSum(Backend& backend, Routes& routes, const std::vector<std::unique_ptr<Parameter>>& parameters,
              const std::vector<GradientUnit>& units, const GroupDeal& deal, DType wire = DType::f32);

  /// What was added up so far does not count.
  void restart();
  /// The next microbatch is the first of its group, or the last, or one in between. The decoder then tells
  /// this of its backward pass.
  void begin_microbatch(bool is_first, bool is_last);
  void begin_unit(std::size_t unit) override;
  void end_unit(std::size_t unit) override;
  /// The last microbatch of this rank's last group has come: the sum of all groups of all ranks is there.
  void finish();

 private:
  std::vector<std::span<float>> summed_tensors() const;
  void finish_group();

  Backend& backend_;
  const std::vector<std::unique_ptr<Parameter>>& parameters_;
  const std::vector<GradientUnit>& units_;
  bool travel_alone_;
  GradientReduction reduction_;
  GradientGroups groups_;  //!< of whole gradients, or, where they travel alone, of the sums of their parts
  bool clears_ = false;    //!< this microbatch's units begin with zeros
  bool ends_group_ = false;
  bool is_under_way_ = false;  //!< a group has ended, and its last units need not have arrived
};

}  // namespace tetrad
