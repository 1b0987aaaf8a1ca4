// SPDX-License-Identifier: Apache-2.0
#include "dry_run.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "backend_choice.h"
#include "tetrad/backend/memory.h"
#include "tetrad/core/threads.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/flops.h"
#include "tetrad/train/link_time.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/rank_plan.h"
#include "tetrad/train/run_log.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/schedule.h"
#include "tetrad/train/step_time.h"

namespace tetrad::app {
namespace {

constexpr double kGiga = 1e9;

std::string size_text(double bytes) {
  return bytes < 1e8 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.3f} GB", bytes / 1e9);
}
std::string size_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

/// The machine that the run would be on, as far as it is this one.
struct Hardware {
  std::string name;                  //!< of the backend
  std::unique_ptr<Backend> backend;  //!< null: not here
  std::string why_not;
};

Hardware find_hardware(const RunConfig& run) {
  try {
    std::unique_ptr<Backend> backend = choose_backend(run.backend, static_cast<int>(run.threads));
    return {std::string(backend->name()), std::move(backend), ""};
  } catch (const Error& error) {
    return {run.backend, nullptr, error.what()};
  }
}

void print_sources(const Dataset& dataset) {
  for (const SourceUse& use : source_uses(dataset))
    fmt::print("{:<12} {} tokens, all below the vocabulary, read {:.2f} times; {}\n", use.name, use.tokens,
               use.epochs,
               use.heldout_tokens ? fmt::format("{} held out", *use.heldout_tokens) : "nothing held out");
}

/// Returns what is doubtful; throws Error if it is refused.
std::vector<std::string> print_data(const Config& config, const Hardware& hardware) {
  Threads threads(hardware.backend ? 1 : static_cast<int>(config.run.threads));
  const Dataset dataset = open_dataset(hardware.backend ? hardware.backend->threads() : threads, config);
  print_sources(dataset);
  return data_warnings(dataset);
}

std::string_view share_text(std::int64_t zero) {
  switch (zero) {
    case 0:
      return "the whole model";
    case 1:
      return "its rows of weights and moments";
    case 2:
      return "its rows of weights, moments and gradients";
    default:
      return "its rows of everything";
  }
}

/// Those of the node and between nodes, as they were given or are supposed.
Links links_of(const PlannedRanks& planned) {
  if (planned.links.empty()) return {};
  return {.ranks_per_node = static_cast<int>(planned.links[0]),
          .inside = planned.links[1] * kGiga,
          .between = planned.links[2] * kGiga};
}

/// What each of them has, and what is between them in a step.
void print_ranks(const Config& config, const PlannedRanks& planned, const Hardware& hardware,
                 std::optional<double> step_seconds) {
  const int ranks = planned.count;
  const Links links = links_of(planned);
  const RankPlan plan = plan_ranks(config, {ranks, links.ranks_per_node});
  fmt::print("\n# {} ranks\n", ranks);
  fmt::print("each         {}, {} of {} groups\n", share_text(config.parallel.zero),
             deal_groups(config, ranks).of_each(), config.train.groups);
  constexpr std::int64_t kFewBytes = 100'000;
  for (const Traffic& traffic : plan.per_step)
    fmt::print("{:<12} {} to others in {} call{} per step{}{}\n", name_of(traffic.collective),
               traffic.bytes < kFewBytes ? fmt::format("{} bytes", traffic.bytes) : size_text(traffic.bytes),
               traffic.calls, traffic.calls == 1 ? "" : "s", traffic.route == Route::direct ? "" : ", ",
               name_of(traffic.route));
  if (planned.links.empty() && hardware.name == "cpu") return;
  double seconds = 0;
  for (const Traffic& traffic : plan.per_step)
    if (traffic.collective == Collective::exchange || traffic.collective == Collective::gather)
      seconds += link_seconds(traffic.calls, static_cast<double>(traffic.bytes), ranks, links, traffic.route);
  fmt::print(
      "links        {:.3g} s per step{}, beside nothing, over {:g} GB/s inside nodes of {} and {:g} GB/s "
      "between{}\n",
      seconds,
      step_seconds ? fmt::format(" ({:.1f} % of it)", 100 * seconds / (*step_seconds + seconds)) : "",
      links.inside / kGiga, links.ranks_per_node, links.between / kGiga,
      planned.links.empty() ? " (supposed; --links)" : "");
}

void print_sizes(const Config& config, const Hardware& hardware, const MemoryEstimate& memory) {
  const std::int64_t steps = step_count(config.train);
  const double tokens = static_cast<double>(steps * config.train.batch * config.train.sequence);
  const double per_token = training_flops_per_token(config.model, config.train.sequence);
  fmt::print("\n# sizes\nparameters   {:L}\n", parameter_count(config.model));
  fmt::print("steps        {} of {} sequences of {} tokens: {:.4g} tokens\n", steps, config.train.batch,
             config.train.sequence, tokens);
  if (config.data.document_mask)
    fmt::print("documents    masked: attention, scan and positions do not cross them\n");
  fmt::print("FLOP         {:.4g} per token, {:.4g} in all\n", per_token, per_token * tokens);
  fmt::print(
      "memory       {} on {} = weights {} + gradients {} + optimizer {}{} + operands {} + activations {} + "
      "scratch {}{}\n",
      size_text(memory.total()), hardware.name, size_text(memory.weights), size_text(memory.gradients),
      size_text(memory.optimizer),
      config.optim.moments == "bf16" ? " (moments of linear layers in BF16)" : "", size_text(memory.operands),
      size_text(memory.activations), size_text(memory.scratch),
      memory.exchange > 0 ? fmt::format(" + gradients on their way {}", size_text(memory.exchange)) : "");
}

void print_room(const Room& room, bool fits, const Hardware& hardware, const CheckpointSpace& space) {
  if (room.device)
    fmt::print("free         {} of memory{}: it {}\n", size_text(*room.device),
               room.host ? fmt::format(", {} of the host's", size_text(*room.host)) : "",
               fits ? "fits" : "DOES NOT FIT");
  else if (!hardware.backend)
    fmt::print("free         unknown: {}\n", hardware.why_not);
  if (space.most == 0)
    fmt::print("checkpoints  none (train.checkpoint.enabled: false)\n");
  else
    fmt::print("checkpoints  {} each, {} at most at once{}\n", size_text(space.each), size_text(space.most),
               space.free ? fmt::format("; {} of the disk are free", size_text(*space.free)) : "");
}

/// What one of the ranks does.
Config of_rank(Config config, int ranks) {
  config.train = part_of_rank(config, ranks);
  return config;
}

/// Returns the seconds of a step, if they could be measured.
std::optional<double> print_time(const Config& config, int ranks, const Hardware& hardware, bool fits,
                                 std::optional<double> price) {
  std::optional<double> seconds;
  const bool is_elsewhere = config.run.gpu_memory > 0 || config.run.host_memory > 0;
  if (hardware.backend && fits && !is_elsewhere)
    seconds = measure_step_seconds(of_rank(config, ranks), *hardware.backend);
  if (!seconds) {
    fmt::print("time         not measured: {}\n",
               is_elsewhere        ? "run.gpu_memory and run.host_memory describe another machine"
               : !hardware.backend ? "the device is not here"
               : !fits             ? "it does not fit into memory"
                                   : "it would take too long on a CPU");
    return seconds;
  }
  constexpr double kSecondsPerHour = 3600;
  const double hours = *seconds * static_cast<double>(step_count(config.train)) / kSecondsPerHour;
  fmt::print(
      "time         {:.3g} s per step, {} in all without evaluations and checkpoints{} (measured now)\n",
      *seconds, format_duration(hours * kSecondsPerHour),
      ranks == 1 ? "" : ", nor for what ranks send each other");
  if (price) fmt::print("price        {:.2f} at {:g} an hour\n", hours * *price, *price);
  return seconds;
}

/// Layers of the same name in blocks one after the other, as far as they are the same, are one line.
void print_layers(const Config& config, const Recipe& recipe, double progress) {
  struct Line {
    std::string first, last, text;
    std::int64_t count = 0;
  };
  std::vector<Line> lines;
  std::map<std::string, std::size_t> open;  // by the name within a block
  for (std::int64_t block = 0; block < config.model.blocks(); ++block) {
    for (const LinearShape& linear :
         linear_shapes(config.model, config.model.pattern[static_cast<std::size_t>(block)])) {
      const std::string name = fmt::format("blocks.{}.{}", block, linear.name);
      const std::string text =
          describe(recipe.at({name, block, linear.out}, progress), config.precision.storage);
      const auto found = open.find(linear.name);
      if (found == open.end() || lines[found->second].text != text) {
        open[linear.name] = lines.size();
        lines.push_back({name, name, text, 0});
      }
      Line& line = lines[open[linear.name]];
      line.last = name;
      ++line.count;
    }
  }
  for (const Line& line : lines) {
    const std::string names =
        line.count == 1 ? line.first : fmt::format("{} … {} ({})", line.first, line.last, line.count);
    fmt::print("{:<34} {}\n", names, line.text);
  }
}

void print_precision(const Config& config, const Recipe& recipe) {
  std::set<double> starts = {0};
  for (const PrecisionSwitch& change : config.precision.schedule) starts.insert(change.at);
  for (const double start : starts) {
    fmt::print("\n# precision of every GEMM from {:g} % of the tokens on\n", 100 * start);
    print_layers(config, recipe, start);
    fmt::print("{:<34} {} operands, f32 accumulation\n", "embedding, head", config.precision.storage);
  }
}

}  // namespace

ExitCode print_dry_run(const Config& config, const Provenance& provenance, const PlannedRanks& ranks,
                       std::optional<double> price_per_hour) {
  const Hardware hardware = find_hardware(config.run);
  const Recipe recipe(config.precision, config.model.blocks());
  fmt::print("# configuration\n{}", explain(config, provenance));
  print_precision(config, recipe);
  std::vector<std::string> warnings;
  std::string refusal;
  fmt::print("\n# data\n");
  try {
    warnings = print_data(config, hardware);
  } catch (const Error& error) {
    refusal = error.what();
    fmt::print("REFUSED: {}\n", refusal);
  }
  const Room room = room_for(config.run, hardware.backend.get());
  const RankLayout layout(ranks.count, links_of(ranks).ranks_per_node);
  const MemoryPlan plan = plan_memory(config, memory_traits(hardware.name), room, layout);
  print_sizes(config, hardware, plan.estimate);
  const CheckpointSpace space = checkpoint_space(config);
  const std::optional<std::string> lacking = shortage(config, memory_traits(hardware.name), room, layout);
  print_room(room, plan.fits(), hardware, space);
  if (lacking) warnings.push_back(*lacking);
  for (std::string& warning : space_warnings(space)) warnings.push_back(std::move(warning));
  const std::optional<double> seconds =
      print_time(config, ranks.count, hardware, plan.fits(), price_per_hour);
  fmt::print("plan         {}\n", describe(plan, config.model, seconds));
  if (ranks.count > 1) print_ranks(config, ranks, hardware, seconds);
  if (!warnings.empty()) fmt::print("\n# warnings\n");
  for (const std::string& warning : warnings) fmt::print("WARNING: {}\n", warning);
  return refusal.empty() ? ExitCode::ok : ExitCode::bad_input;
}

}  // namespace tetrad::app
