// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/backend/memory.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/train/trainer.h"

namespace tetrad {
namespace {

constexpr double kGb = 1e9;

/// Pinned memory is taken from everybody else: so much stays.
constexpr std::int64_t kLeftOnHost = 8'000'000'000;

/// What allocations are rounded up by, and libraries take for themselves.
constexpr std::int64_t kLeftOnDevice = 1'500'000'000;

double in_gb(double bytes) { return bytes / kGb; }

/// What `auto` may do to blocks, the cheapest for each GB first. On an H200, at 1.1B in BF16, milliseconds
/// for a GB and a microbatch were 0.8 (products), 2.9 (feed-forward) and 4.4 (attention): docs/benchmarks.md.
/// Mamba-2 keeps states besides, which take few FLOP to compute again.
struct Lever {
  Keep keep;
  std::string_view letters;  //!< of the blocks that it is for
};
constexpr std::array kLevers = {Lever{Keep::products, kBlockLetters}, Lever{Keep::nothing, "M"},
                                Lever{Keep::nothing, "-"}, Lever{Keep::nothing, "*"}};

/// One block keeps less.
struct Step {
  std::size_t block;
  Keep keep;
};

class Planner {
 public:
  Planner(const Config& config, const MemoryTraits& traits, const Room& room)
      : config_(config), traits_(traits), room_(room), recipe_(config.precision, config.model.blocks()) {}

  MemoryPlan plan() const {
    const std::string& recompute = config_.train.recompute;
    if (recompute != "auto") return with(recompute_from_name(recompute));
    const std::vector<Step> steps = all_steps();
    // None needs more memory than the one before it.
    const auto enough = std::ranges::partition_point(steps, [&](const Step& next) {
      return !with(after({steps.data(), &next})).fits();
    });
    return with(after({steps.begin(), enough}));
  }

 private:
  /// Every step that saves something, in the order in which they are made.
  std::vector<Step> all_steps() const {
    const std::string& pattern = config_.model.pattern;
    const auto kept = [&](Keep keep) {
      return with(RecomputePlan(std::vector(pattern.size(), keep)), 0).estimate.kept_by_block;
    };
    std::vector<Step> steps;
    std::vector<double> before = kept(Keep::all);
    for (const Lever& lever : kLevers) {
      const std::vector<double> then = kept(lever.keep);
      for (std::size_t block = 0; block < pattern.size(); ++block) {
        if (lever.letters.find(pattern[block]) == std::string_view::npos || then[block] >= before[block])
          continue;
        steps.push_back({block, lever.keep});
        before[block] = then[block];
      }
    }
    return steps;
  }

  RecomputePlan after(std::span<const Step> steps) const {
    std::vector<Keep> blocks(config_.model.pattern.size(), Keep::all);
    for (const Step& step : steps) blocks[step.block] = step.keep;
    return RecomputePlan(std::move(blocks));
  }

  /// With as many moments on the host as the configuration says or must be.
  MemoryPlan with(const RecomputePlan& recompute) const {
    const std::string& moments = config_.train.memory.moments;
    MemoryPlan resident = with(recompute, 0);
    if (moments == "device" || (moments == "auto" && resident.fits_device)) return resident;
    const DType type = moment_storage(config_.optim);
    const std::int64_t all = host_moments(config_.model, type, moment_bytes(config_.model, type));
    if (moments == "host") return with(recompute, all);
    if (!room_.host) return resident;
    // What operations need to stream moments is known only with a plan that does.
    const double missing =
        with(recompute, all).estimate.total() + static_cast<double>(all) - static_cast<double>(*room_.device);
    return with(recompute,
                host_moments(config_.model, type, std::min(all, static_cast<std::int64_t>(missing) + 1)));
  }

  MemoryPlan with(const RecomputePlan& recompute, std::int64_t host) const {
    MemoryCase c = memory_case(config_);
    c.recompute = recompute;
    c.host_moments = host;
    MemoryPlan plan{recompute, host, estimate_memory(config_.model, recipe_, c, traits_)};
    plan.fits_device = !room_.device || plan.estimate.total() <= static_cast<double>(*room_.device);
    plan.fits_host = host == 0 || !room_.host || host <= *room_.host;
    if (traits_.host_bandwidth > 0) plan.transfer_seconds = plan.estimate.host / traits_.host_bandwidth;
    plan.recomputed = recomputed_flops_per_token(config_.model, c.sequence, recompute) /
                      training_flops_per_token(config_.model, c.sequence);
    return plan;
  }

  const Config& config_;
  const MemoryTraits& traits_;
  const Room& room_;
  Recipe recipe_;
};

}  // namespace

Room room_for(const RunConfig& config, const Backend* backend) {
  Room room;
  if (backend != nullptr) {
    room.device = backend->free_memory();
    room.host = backend->free_host_memory();
    const auto leave = [](std::optional<std::int64_t>& memory, std::int64_t bytes) {
      if (memory) memory = std::max<std::int64_t>(0, *memory - bytes);
    };
    leave(room.host, kLeftOnHost);
    if (room.host) leave(room.device, kLeftOnDevice);  // where the device is not the host
  }
  if (config.gpu_memory > 0) room.device = static_cast<std::int64_t>(config.gpu_memory * kGb);
  if (config.host_memory > 0) room.host = static_cast<std::int64_t>(config.host_memory * kGb);
  return room;
}

MemoryPlan plan_memory(const Config& config, const MemoryTraits& traits, const Room& room) {
  return Planner(config, traits, room).plan();
}

MemoryPlan plan_memory(const Config& config, const Backend& backend) {
  return plan_memory(config, memory_traits(backend.name()), room_for(config.run, &backend));
}

std::optional<std::string> shortage(const Config& config, const MemoryTraits& traits, const Room& room) {
  const MemoryPlan plan = plan_memory(config, traits, room);
  if (plan.fits()) return std::nullopt;
  std::string text = fmt::format("this run needs about {:.1f} GB of memory", in_gb(plan.estimate.total()));
  if (room.device) text += fmt::format(", and {:.1f} GB are free", in_gb(static_cast<double>(*room.device)));
  if (!plan.fits_host)
    text += fmt::format("; {:.1f} GB of AdamW's moments would be on the host, which has {:.1f} GB for them",
                        in_gb(plan.estimate.host), in_gb(static_cast<double>(*room.host)));
  // The nearest plan: everything that the program may choose, left to it.
  Config free = config;
  free.train.memory.moments = "auto";
  free.train.recompute = "auto";
  const MemoryPlan nearest = plan_memory(free, traits, room);
  if (nearest.fits())
    return text + fmt::format(": train.memory=auto train.recompute=auto would fit ({})",
                              describe(nearest, config.model));
  return text + fmt::format(
                    ": use a smaller train.microbatch or train.sequence, or a machine with more (at the "
                    "least {:.1f} GB on "
                    "the device: {})",
                    in_gb(nearest.estimate.total()), describe(nearest, config.model));
}

std::optional<std::string> shortage(const Config& config, const Backend& backend) {
  return shortage(config, memory_traits(backend.name()), room_for(config.run, &backend));
}

std::string describe(const MemoryPlan& plan, const ModelConfig& model, std::optional<double> step_seconds) {
  std::string text = "moments on the device";
  if (plan.host_moments > 0)
    text = fmt::format(
        "moments {:.0f} % on the device, {:.1f} GB pinned on the host: {:.1f} GB each way per step",
        100 * plan.estimate.optimizer / (plan.estimate.optimizer + plan.estimate.host),
        in_gb(plan.estimate.host), in_gb(plan.estimate.host));
  if (plan.transfer_seconds > 0) {
    text += fmt::format(", {:.2g} s", plan.transfer_seconds);
    if (step_seconds) text += fmt::format(" = {:.3g} % of it", 100 * plan.transfer_seconds / *step_seconds);
  }
  text += fmt::format("; recompute {}", plan.recompute.describe(model.pattern));
  if (plan.recomputed > 0) text += fmt::format(": {:.2g} % more FLOP", 100 * plan.recomputed);
  return text;
}

}  // namespace tetrad
