// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <ranges>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tetrad/backend/memory.h"
#include "tetrad/model/flops.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/train/run_parts.h"

namespace tetrad {
namespace {

constexpr double kGb = 1e9;

/// Pinned memory is taken from everybody else: so much stays.
constexpr std::int64_t kLeftOnHost = 8'000'000'000;

/// What allocations are rounded up by, and libraries take for themselves.
constexpr std::int64_t kLeftOnDevice = 1'500'000'000;

double in_gb(double bytes) { return bytes / kGb; }

/// Milliseconds that a GB less on the device costs in each microbatch, on an H200. Measured at 1.1B in BF16
/// (docs/benchmarks.md) are those of recomputation. Mamba-2 keeps states besides, which take few FLOP to
/// compute again: it counts as feed-forward, and comes before.
constexpr double kProductsCost = 0.8;
constexpr double kFeedForwardCost = 2.9;
constexpr double kAttentionCost = 4.4;
/// Computed: a weight in NVFP4 is read as 0.56 bytes and written as 2 for each of two products, at 4 TB/s,
/// and 1.44 bytes are saved.
constexpr double kCodesCost = 0.9;
/// Measured with an 8B in BF16: 45 ms for 3.2 GB. Few heads are too little work for the whole device.
constexpr double kPartsCost = 14;

/// What `auto` may do to blocks.
struct BlockLever {
  Keep keep;
  std::string_view letters;  //!< of the blocks that it is for
  double cost;
};
constexpr std::array kBlockLevers = {BlockLever{Keep::products, kBlockLetters, kProductsCost},
                                     BlockLever{Keep::nothing, "M", kFeedForwardCost},
                                     BlockLever{Keep::nothing, "-", kFeedForwardCost},
                                     BlockLever{Keep::nothing, "*", kAttentionCost}};

enum class Moments : std::uint8_t { on_device, as_they_fit, on_host };

/// A plan that is being made.
struct Draft {
  MemoryLevers levers;
  std::vector<Keep> blocks;  //!< by index, where blocks are recomputed one by one
  Moments moments = Moments::on_device;
};

/// One thing that makes a plan need less on the device.
struct Step {
  double cost;  //!< in the milliseconds above
  std::function<void(Draft&)> make;
};

class Planner {
 public:
  Planner(const Config& config, const MemoryTraits& traits, const Room& room, const RankLayout& ranks)
      : config_(config),
        traits_(traits),
        room_(room),
        ranks_(ranks.count),
        case_(memory_case(config, ranks)),
        recipe_(config.precision, config.model.blocks()),
        estimator_(config.model, recipe_, traits) {}

  MemoryPlan plan() const {
    const std::vector<Step> steps = all_steps();
    const auto after = [&](std::size_t count) {
      Draft draft = as_told();
      for (const Step& step : std::span(steps).first(count)) step.make(draft);
      return draft;
    };
    // None needs more memory than the one before it.
    const auto counts = std::views::iota(std::size_t{0}, steps.size());
    const auto enough =
        std::ranges::partition_point(counts, [&](std::size_t count) { return !with(after(count)).fits(); });
    MemoryPlan plan = with(after(static_cast<std::size_t>(enough - counts.begin())));
    if (traits_.host_bandwidth > 0)
      plan.transfer_seconds = plan.estimate.moments_on_host / traits_.host_bandwidth;
    const std::int64_t sequence = config_.train.sequence;
    plan.recomputed = recomputed_flops_per_token(config_.model, sequence, plan.levers.recompute) /
                      training_flops_per_token(config_.model, sequence);
    return plan;
  }

 private:
  /// What the configuration says, without what it leaves to be chosen.
  Draft as_told() const {
    const auto& [moments, weights, residual] = config_.train.memory;
    Draft draft;
    draft.levers.weights_as_codes = weights == "codes" || case_.shards() > 1;  // they travel as codes
    draft.levers.residual_on_host = residual == "host";
    if (moments == "host") draft.moments = Moments::on_host;
    if (config_.train.recompute == "auto")
      draft.blocks.assign(config_.model.pattern.size(), Keep::all);
    else
      draft.levers.recompute = recompute_from_name(config_.train.recompute);
    return draft;
  }

  /// Every step that saves something, in the order in which they are made: by their cost.
  std::vector<Step> all_steps() const {
    const auto& [moments, weights, residual] = config_.train.memory;
    std::vector<Step> steps;
    const auto add = [&](double cost, bool is_auto, std::function<void(Draft&)> make) {
      if (is_auto && saves(make)) steps.push_back({cost, std::move(make)});
    };
    add(kPartsCost, true, [](Draft& draft) { draft.levers.attention_by_parts = true; });
    add(0, residual == "auto" && room_.host, [](Draft& draft) { draft.levers.residual_on_host = true; });
    add(kCodesCost, weights == "auto", [](Draft& draft) { draft.levers.weights_as_codes = true; });
    add(moments_cost(), moments == "auto" && room_.host,
        [](Draft& draft) { draft.moments = Moments::as_they_fit; });
    if (config_.train.recompute == "auto") add_block_steps(steps);
    std::ranges::stable_sort(steps, {}, &Step::cost);
    return steps;
  }

  void add_block_steps(std::vector<Step>& steps) const {
    const std::string& pattern = config_.model.pattern;
    const auto kept = [&](Keep keep) {
      MemoryCase c = case_;
      c.levers.recompute = RecomputePlan(std::vector(pattern.size(), keep));
      return estimator_.estimate(c).kept_by_block;
    };
    std::vector<double> before = kept(Keep::all);
    for (const BlockLever& lever : kBlockLevers) {
      const std::vector<double> then = kept(lever.keep);
      for (std::size_t block = 0; block < pattern.size(); ++block) {
        if (lever.letters.find(pattern[block]) == std::string_view::npos || then[block] >= before[block])
          continue;
        steps.push_back(
            {lever.cost, [block, keep = lever.keep](Draft& draft) { draft.blocks[block] = keep; }});
        before[block] = then[block];
      }
    }
  }

  /// They go over the bus once in a step of several microbatches.
  double moments_cost() const {
    const double microbatches = static_cast<double>(config_.train.microbatches()) / ranks_;
    return traits_.host_bandwidth > 0 ? 1e3 * kGb / traits_.host_bandwidth / microbatches : 0;
  }

  /// Whether a step by itself makes the device need less, and the host has room for what it moves there. (Of
  /// moments only some may be moved.)
  bool saves(const std::function<void(Draft&)>& make) const {
    Draft draft = as_told();
    const double before = with(draft).estimate.total();
    make(draft);
    const bool moves_some = draft.moments == Moments::as_they_fit;
    if (moves_some) draft.moments = Moments::on_host;
    const MemoryPlan then = with(draft);
    return then.estimate.total() < before && (then.fits_host || moves_some);
  }

  /// With as many moments on the host as the draft says or must be.
  MemoryPlan with(const Draft& draft) const {
    MemoryCase c = case_;
    c.levers = draft.levers;
    if (!draft.blocks.empty()) c.levers.recompute = RecomputePlan(draft.blocks);
    const std::int64_t all =
        estimator_.host_moments(c.moments, std::numeric_limits<std::int64_t>::max(), c.shards());
    const auto moving = [&](std::int64_t bytes) {
      c.host_moments = estimator_.host_moments(c.moments, bytes, c.shards());
      MemoryPlan plan{c.levers, c.host_moments, estimator_.estimate(c)};
      plan.fits_device = !room_.device || plan.estimate.total() <= static_cast<double>(*room_.device);
      plan.fits_host = !room_.host || plan.estimate.host() <= static_cast<double>(*room_.host);
      return plan;
    };
    if (draft.moments == Moments::on_host) return moving(all);
    MemoryPlan resident = moving(0);
    if (draft.moments == Moments::on_device || resident.fits_device) return resident;
    // What operations need to stream moments is known only with a plan that does.
    const double missing =
        moving(all).estimate.total() + static_cast<double>(all) - static_cast<double>(*room_.device);
    return moving(std::min(all, static_cast<std::int64_t>(missing) + 1));
  }

  const Config& config_;
  const MemoryTraits& traits_;
  const Room& room_;
  int ranks_;
  MemoryCase case_;
  Recipe recipe_;
  MemoryEstimator estimator_;
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

MemoryPlan plan_memory(const Config& config, const MemoryTraits& traits, const Room& room,
                       const RankLayout& ranks) {
  return Planner(config, traits, room, ranks).plan();
}

MemoryPlan plan_memory(const Config& config, const Backend& backend, const RankLayout& ranks) {
  return plan_memory(config, memory_traits(backend.name()), room_for(config.run, &backend), ranks);
}

std::optional<std::string> shortage(const Config& config, const MemoryTraits& traits, const Room& room,
                                    const RankLayout& ranks) {
  const MemoryPlan plan = plan_memory(config, traits, room, ranks);
  if (plan.fits()) return std::nullopt;
  std::string text = fmt::format("this run needs about {:.1f} GB of memory", in_gb(plan.estimate.total()));
  if (room.device) text += fmt::format(", and {:.1f} GB are free", in_gb(static_cast<double>(*room.device)));
  if (!plan.fits_host)
    text += fmt::format("; {:.1f} GB would be on the host, which has {:.1f} GB for them",
                        in_gb(plan.estimate.host()), in_gb(static_cast<double>(*room.host)));
  // The nearest plan: everything that the program may choose, left to it.
  Config free = config;
  free.train.memory = {};
  free.train.recompute = "auto";
  const MemoryPlan nearest = plan_memory(free, traits, room, ranks);
  if (nearest.fits())
    return text + fmt::format(": train.memory=auto train.recompute=auto would fit ({})",
                              describe(nearest, config.model));
  return text + fmt::format(
                    ": use a smaller train.microbatch or train.sequence, or a machine with more (at the "
                    "least {:.1f} GB on "
                    "the device: {})",
                    in_gb(nearest.estimate.total()), describe(nearest, config.model));
}

std::optional<std::string> shortage(const Config& config, const Backend& backend, const RankLayout& ranks) {
  return shortage(config, memory_traits(backend.name()), room_for(config.run, &backend), ranks);
}

std::string describe(const MemoryPlan& plan, const ModelConfig& model, std::optional<double> step_seconds) {
  const MemoryEstimate& estimate = plan.estimate;
  std::string text = "moments on the device";
  if (plan.host_moments > 0)
    text = fmt::format(
        "moments {:.0f} % on the device, {:.1f} GB pinned on the host: {:.1f} GB each way per step",
        100 * estimate.optimizer / (estimate.optimizer + estimate.moments_on_host),
        in_gb(estimate.moments_on_host), in_gb(estimate.moments_on_host));
  if (plan.transfer_seconds > 0) {
    text += fmt::format(", {:.2g} s", plan.transfer_seconds);
    if (step_seconds) text += fmt::format(" = {:.3g} % of it", 100 * plan.transfer_seconds / *step_seconds);
  }
  if (estimate.residual_on_host > 0)
    text += fmt::format("; residual stream on the host, {:.1f} GB pinned", in_gb(estimate.residual_on_host));
  if (plan.levers.weights_as_codes) text += "; weights as codes";
  if (plan.levers.attention_by_parts) text += "; attention by parts of heads";
  text += fmt::format("; recompute {}", plan.levers.recompute.describe(model.pattern));
  if (plan.recomputed > 0) text += fmt::format(": {:.2g} % more FLOP", 100 * plan.recomputed);
  return text;
}

}  // namespace tetrad
