// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a run fits into the memory there is: what lies on the host instead of on the device, what is kept in
// fewer bytes, and what is computed again instead of being kept. Every plan gives the same bits, so that the
// machine may decide, and a run may go on with another.

#include <cstdint>
#include <optional>
#include <string>

#include "tetrad/model/estimate.h"
#include "tetrad/ops/backend.h"
#include "tetrad/train/config.h"
#include "tetrad/train/rank_plan.h"

namespace tetrad {

/// Bytes that a run may have; nothing: nobody knows.
struct Room {
  std::optional<std::int64_t> device;
  std::optional<std::int64_t> host;  //!< nothing too where the device is the host
};

/// What is free on this backend, or what run.gpu_memory and run.host_memory say; `backend` may be null: it is
/// not here.
Room room_for(const RunConfig& config, const Backend* backend);

struct MemoryPlan {
  MemoryLevers levers;
  std::int64_t host_moments = 0;  //!< bytes of AdamW's moments on the host
  MemoryEstimate estimate;
  bool fits_device = true;  //!< also where nobody knows
  bool fits_host = true;
  double transfer_seconds = 0;  //!< of a step, for the moments on the host; 0: they stay where they are
  double recomputed = 0;        //!< FLOP that are computed twice, as a part of all

  bool fits() const { return fits_device && fits_host; }
  /// Whether everything stays on the device as the kernels like it best; of recomputation nothing is said.
  bool is_plain() const {
    return estimate.host() == 0 && !levers.weights_as_codes && !levers.attention_by_parts;
  }
};

/// The cheapest plan that the configuration allows and that fits: steps in the order of their cost for each
/// GB, as few as it takes. Where none fits, the one that needs least.
MemoryPlan plan_memory(const Config& config, const MemoryTraits& traits, const Room& room,
                       const RankLayout& ranks = {});
/// For one of the ranks of a run on this backend, in what is free there.
MemoryPlan plan_memory(const Config& config, const Backend& backend, const RankLayout& ranks = {});

/// What does not fit, with what would help; nothing: it fits, or nobody knows.
std::optional<std::string> shortage(const Config& config, const MemoryTraits& traits, const Room& room,
                                    const RankLayout& ranks = {});
std::optional<std::string> shortage(const Config& config, const Backend& backend,
                                    const RankLayout& ranks = {});

/// One line: where things are, what is recomputed, and what that costs in each step, as a part of it where it
/// is known how long one takes.
std::string describe(const MemoryPlan& plan, const ModelConfig& model,
                     std::optional<double> step_seconds = std::nullopt);

}  // namespace tetrad
