// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/rank_plan.h"

#include <algorithm>
#include <array>
#include <string>

#include "tetrad/backend/planned_backend.h"
#include "tetrad/model/decoder.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/optim/gradient_sum.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/counting_communicator.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/step_record.h"

namespace tetrad {
namespace {

constexpr std::array kKinds = {Collective::exchange, Collective::gather,    Collective::max_u32,
                               Collective::share,    Collective::broadcast, Collective::barrier};

std::vector<std::string> hosts_of(int ranks, int ranks_per_node) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(std::to_string(rank / ranks_per_node));
  return hosts;
}

/// Ranks of the first node only, or of several.
Route route_of(const std::vector<int>& ranks, int ranks_per_node) {
  if (ranks.empty()) return Route::direct;
  return ranks.back() < ranks_per_node ? Route::within_node : Route::between_nodes;
}

/// Adds what was counted since `before`, `times` over.
void add(std::vector<Traffic>& sums, const std::vector<CountingCommunicator::Counts>& before,
         const std::vector<CountingCommunicator::Counts>& now, std::int64_t times, int ranks_per_node) {
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Route route = route_of(now[i].ranks, ranks_per_node);
    for (const Collective kind : kKinds) {
      const std::int64_t calls = now[i].of(kind).calls - before[i].of(kind).calls;
      if (calls == 0) continue;
      auto sum = std::ranges::find_if(
          sums, [&](const Traffic& each) { return each.collective == kind && each.route == route; });
      if (sum == sums.end()) sum = sums.insert(sum, {kind, route});
      sum->calls += times * calls;
      sum->bytes += times * (now[i].of(kind).bytes - before[i].of(kind).bytes);
    }
  }
}

/// The model of the first rank.
struct PlannedModel {
  PlannedModel(const Config& config, const RankLayout& ranks)
      : counting(0, ranks.count),
        routes(counting,
               ranks_per_node(hosts_of(ranks.count, ranks.per_node), config.parallel.ranks_per_node)),
        shards(make_shards(config, backend, routes)),
        decoder(backend, config.model, 1, config.train.sequence, storage_type(config.precision), {},
                shards.get()) {}

  PlannedBackend backend;
  CountingCommunicator counting;
  Routes routes;
  std::unique_ptr<WeightShards> shards;
  Decoder decoder;
};

}  // namespace

TrainConfig part_of_rank(const Config& config, int ranks) {
  TrainConfig part = config.train;
  part.groups = deal_groups(config, ranks).of_each();
  part.batch /= ranks;
  return part;
}

std::int64_t exchange_memory(const Config& config, const RankLayout& ranks) {
  if (ranks.count == 1 && gradient_wire(config) == DType::f32) return 0;
  PlannedModel model(config, ranks);
  const std::int64_t before = model.backend.memory_in_use();
  const GradientReduction reduction(model.backend, model.routes, model.decoder.parameters(),
                                    model.decoder.gradient_units(), gradient_wire(config));
  return model.backend.memory_in_use() - before;
}

RankPlan plan_ranks(const Config& config, const RankLayout& layout) {
  const int ranks = layout.count;
  const TrainConfig part = part_of_rank(config, ranks);
  PlannedModel model(config, layout);
  auto& [backend, counting, routes, shards, decoder] = model;
  AdamWOptimizer optimizer(backend, decoder.parameters(), config.optim);

  // Gradients travel with every group or once. What is between the first and the last time is always the
  // same.
  GroupDeal deal = deal_groups(config, ranks);
  const std::int64_t times = deal.travel_alone ? deal.of_each() : 1;
  const std::int64_t counted = std::min<std::int64_t>(times, 3);
  deal.groups = counted * ranks;
  RankPlan plan;
  GradientSum gradients(backend, routes, decoder.parameters(), decoder.gradient_units(), deal,
                        gradient_wire(config));

  std::vector<CountingCommunicator::Counts> since = counting.counts();
  const auto count = [&](std::int64_t weight) {
    add(plan.per_step, since, counting.counts(), weight, layout.per_node);
    since = counting.counts();
  };
  const auto begin_microbatch = [&] {  // as Trainer does
    on_any(counting, false);
    together(counting, [] {});
  };
  const Recipe recipe(config.precision, config.model.blocks());
  Pass pass;
  pass.recipe = &recipe;
  pass.gradients = &gradients;
  for (std::int64_t time = 0; time < counted; ++time) {
    begin_microbatch();
    gradients.begin_microbatch(true, true);
    decoder.differentiate(pass, 1);
    count(time == 1 && counted > 2 ? times - 2 : 1);
  }
  begin_microbatch();
  count(part.microbatches() - times);
  gradients.finish();
  on_any(counting, false);
  StepRecord record;
  for (std::int64_t i = 0; i < part.microbatches(); ++i)
    record.losses[i * ranks] = 1.0 / 3;  // as long as any
  share(counting, record);
  optimizer.step(1, 1, optimizer.inspect().norm);
  count(1);
  return plan;
}

}  // namespace tetrad
