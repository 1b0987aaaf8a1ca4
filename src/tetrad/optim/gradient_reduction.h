// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of all ranks become their sum, a unit of the backward pass at a time and while that goes on.
// Transports move parts of them, which are added in the order of ranks' tree: the sum is that of one rank
// with everybody's groups (ops/ordered_sum.h). Of a matrix that ranks share each gets the sum of its own
// rows; of anything else every rank gets all of it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tetrad/model/gradient_units.h"
#include "tetrad/model/parameter.h"
#include "tetrad/ops/backend.h"
#include "tetrad/parallel/routes.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad {

class GradientReduction {
 public:
  /// `wire`: how gradients leave a rank, f32 or rounded to BF16; what nodes have added up stays f32.
  GradientReduction(Backend& backend, Routes& routes,
                    const std::vector<std::unique_ptr<Parameter>>& parameters,
                    const std::vector<GradientUnit>& units, DType wire = DType::f32);

  /// The gradients of this unit are complete and stay as they are until it is added up. Those that are under
  /// way go on to their next leg meanwhile. All ranks start the same units in the same order.
  void start(std::size_t unit);
  /// Calls this with each unit whose parts are added up, here and on all other ranks.
  void on_added(std::function<void(std::size_t unit)> listener) { added_ = std::move(listener); }
  /// All that were started are added up.
  void finish();

  /// What this rank adds up of the parameter of this index: where, and how much.
  std::span<float> own_part(std::size_t index) const;

  /// Every rank gets all of what each needs whole. Until wait() nobody may look.
  void start_gather(std::size_t unit);
  void wait();

 private:
  struct Flight {
    std::size_t unit;
    std::size_t leg;
    std::uint64_t number;  //!< of the exchange there
  };
  /// The memory of a leg: of one unit at a time.
  struct LegMemory {
    Buffer received;
    Buffer sums;  //!< of this leg, for the next one
  };
  /// Calls body(parameter, owners, own) for each part that this rank adds up on a leg of a unit: `own` is
  /// whose it is, and `owners` those whose parts travel at the same time, by place on the leg.
  template <typename Body>
  void for_each_sum(std::size_t leg, std::size_t unit, const Body& body) const;

  const RowBand& part_of(std::size_t parameter, int rank) const;
  std::size_t bytes_of(std::size_t parameter, int rank, DType type) const;
  DType type_on(std::size_t leg) const { return leg == 0 ? wire_ : DType::f32; }
  /// What leaves this rank on a leg, by parameter and whose part it is; rounded, where that is asked for.
  std::vector<std::vector<std::span<std::byte>>> to_send(std::size_t leg, std::size_t unit);
  void launch(std::size_t leg, std::size_t unit);
  void add(const Flight& flight);
  void go_on();

  Backend& backend_;
  Routes& routes_;
  const std::vector<std::unique_ptr<Parameter>>& parameters_;
  const std::vector<GradientUnit>& units_;
  DType wire_;
  std::vector<std::vector<RowBand>> parts_;  //!< elements, by parameter and rank
  std::vector<LegMemory> memory_;            //!< by leg
  Buffer rounded_;                           //!< a unit's gradients as they leave, if not as they are
  std::vector<Flight> flights_;              //!< the oldest first, each on another leg
  std::function<void(std::size_t)> added_ = [](std::size_t) {};
  std::uint64_t last_gather_ = 0;
};

}  // namespace tetrad
