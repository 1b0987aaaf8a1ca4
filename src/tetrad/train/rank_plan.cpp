// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/rank_plan.h"

#include "tetrad/backend/planned_backend.h"
#include "tetrad/model/decoder.h"
#include "tetrad/optim/gradient_reduction.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/counting_communicator.h"
#include "tetrad/train/step_record.h"
#include "tetrad/train/trainer.h"

namespace tetrad {

TrainConfig part_of_rank(const TrainConfig& config, int ranks) {
  TrainConfig part = config;
  part.groups = groups_of_rank(config, ranks);
  part.batch /= ranks;
  return part;
}

RankPlan plan_ranks(const Config& config, int ranks) {
  const TrainConfig part = part_of_rank(config.train, ranks);
  PlannedBackend backend;
  CountingCommunicator counting(0, ranks);
  const std::unique_ptr<WeightShards> shards = make_shards(config, backend, counting);
  Decoder decoder(backend, config.model, 1, config.train.sequence, storage_type(config.precision), {},
                  shards.get());
  const std::int64_t before = backend.peak_memory();
  GradientReduction reduction(backend, counting, decoder.parameters());
  RankPlan plan{.per_step = {}, .buffers = backend.peak_memory() - before};
  counting.restart();
  // The collectives of Trainer, in a step of which nothing is to be said.
  on_any(counting, false);
  together(counting, [] {});
  StepRecord record;
  record.losses.assign(static_cast<std::size_t>(part.microbatches()), 1.0 / 3);  // as long as any
  share(counting, record);
  reduction.reduce();
  for (const Collective collective : {Collective::exchange, Collective::gather, Collective::max_u32,
                                      Collective::share, Collective::broadcast, Collective::barrier})
    if (const CountingCommunicator::Count& count = counting.count(collective); count.calls > 0)
      plan.per_step.push_back({collective, count.calls, count.bytes});
  return plan;
}

}  // namespace tetrad
