// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tetrad/backend/memory.h"
#include "tetrad/model/parameter_table.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/train/trainer.h"

namespace tetrad {
namespace {

constexpr double kGb = 1e9;

/// Pinned memory is taken from everybody else: so much stays.
constexpr std::int64_t kLeftOnHost = 8'000'000'000;

double in_gb(double bytes) { return bytes / kGb; }

std::vector<Recompute> allowed_recomputations(const Config& config) {
  if (config.train.recompute != "auto") return {recompute_from_name(config.train.recompute)};
  return {Recompute::none, Recompute::cheap, Recompute::ffn, Recompute::full};
}

/// Plans with one amount of recomputation.
class Planner {
 public:
  Planner(const Config& config, const MemoryTraits& traits, const Room& room)
      : config_(config), traits_(traits), room_(room), recipe_(config.precision, config.model.blocks()) {}

  MemoryPlan plan(Recompute recompute) const {
    const std::string& moments = config_.train.memory.moments;
    const MemoryPlan resident = with(recompute, 0);
    if (moments == "device" || (moments == "auto" && resident.fits_device)) return resident;
    const std::int64_t all = host_moments(config_.model, 2 * moment_bytes(parameter_count(config_.model)));
    if (moments == "host") return with(recompute, all);
    if (!room_.host) return resident;
    // What operations need to stream moments is known only with a plan that does.
    const double missing =
        with(recompute, all).estimate.total() + static_cast<double>(all) - static_cast<double>(*room_.device);
    return with(recompute,
                host_moments(config_.model, std::min(all, static_cast<std::int64_t>(missing) + 1)));
  }

 private:
  MemoryPlan with(Recompute recompute, std::int64_t host) const {
    MemoryCase c = memory_case(config_);
    c.recompute = recompute;
    c.host_moments = host;
    MemoryPlan plan{recompute, host, estimate_memory(config_.model, recipe_, c, traits_)};
    plan.fits_device = !room_.device || plan.estimate.total() <= static_cast<double>(*room_.device);
    plan.fits_host = host == 0 || !room_.host || host <= *room_.host;
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
    if (room.host) room.host = std::max<std::int64_t>(0, *room.host - kLeftOnHost);
  }
  if (config.gpu_memory > 0) room.device = static_cast<std::int64_t>(config.gpu_memory * kGb);
  if (config.host_memory > 0) room.host = static_cast<std::int64_t>(config.host_memory * kGb);
  return room;
}

MemoryPlan plan_memory(const Config& config, const MemoryTraits& traits, const Room& room) {
  const Planner planner(config, traits, room);
  MemoryPlan plan;
  for (const Recompute recompute : allowed_recomputations(config)) {
    plan = planner.plan(recompute);
    if (plan.fits()) break;
  }
  return plan;
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
    return text + fmt::format(": train.memory=auto train.recompute=auto would fit ({})", describe(nearest));
  return text + fmt::format(
                    ": use a smaller train.microbatch or train.sequence, or a machine with more (at the "
                    "least {:.1f} GB on "
                    "the device: {})",
                    in_gb(nearest.estimate.total()), describe(nearest));
}

std::optional<std::string> shortage(const Config& config, const Backend& backend) {
  return shortage(config, memory_traits(backend.name()), room_for(config.run, &backend));
}

std::string describe(const MemoryPlan& plan) {
  const double moments = plan.estimate.optimizer + plan.estimate.host;
  std::string text = fmt::format("recompute {}", name_of(plan.recompute));
  if (plan.host_moments == 0) return text + "; moments on the device";
  return text +
         fmt::format(
             "; moments {:.0f} % on the device, {:.1f} GB pinned on the host: {:.1f} GB each way per step",
             100 * plan.estimate.optimizer / moments, in_gb(plan.estimate.host), in_gb(plan.estimate.host));
}

}  // namespace tetrad
