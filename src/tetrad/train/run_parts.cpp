// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_parts.h"

#include "tetrad/core/error.h"
#include "tetrad/train/schedule.h"

namespace tetrad {

GroupDeal deal_groups(const Config& config, int ranks) {
  const std::int64_t groups = config.train.groups;
  const std::int64_t zero = config.parallel.zero;
  const GroupDeal deal{groups, ranks, zero >= kSharesGradients || config.parallel.gradient_wire != "f32"};
  TETRAD_CHECK(
      deal.keeps_order(),
      "train.groups is {}, which {} ranks cannot share so that the results stay those of one: use a "
      "number of groups that is the number of ranks times {} (it is part of what a run computes, so "
      "choose it for the most ranks that the run may ever have)",
      groups, ranks,
      deal.travel_alone ? "any number, for a number of ranks that is a power of two" : "a power of two");
  TETRAD_CHECK(zero < kSharesGradients || ranks == 1 || groups == config.train.microbatches(),
               "parallel.zero is {}, for which each microbatch must be a group of its own, and a step has {} "
               "microbatches in {} groups: use train.groups={} (it is part of what a run computes) or "
               "parallel.zero=1",
               zero, config.train.microbatches(), groups, config.train.microbatches());
  return deal;
}

std::unique_ptr<WeightShards> make_shards(const Config& config, Backend& backend, Routes& routes) {
  const int ranks = routes.ranks().size();
  if (config.parallel.zero == 0 || ranks == 1) return nullptr;
  TETRAD_CHECK(ranks <= kPieces,
               "parallel.zero is {}, and {} ranks are more than the {} that can share a matrix: use "
               "parallel.zero=0 or fewer ranks",
               config.parallel.zero, ranks, kPieces);
  return std::make_unique<WeightShards>(backend, routes, config.parallel.zero);
}

DType gradient_wire(const Config& config) {
  return config.parallel.gradient_wire == "bf16" ? DType::bf16 : DType::f32;
}

MemoryCase memory_case(const Config& config, const RankLayout& ranks) {
  const TrainConfig& train = config.train;
  const GroupDeal deal = deal_groups(config, ranks.count);
  return {.batch = train.microbatch > 0 ? train.microbatch : train.batch,
          .sequence = train.sequence,
          .storage = storage_type(config.precision),
          .waiting_gradients = waiting_gradients(deal.of_each()),
          .ranks = ranks.count,
          .zero = config.parallel.zero,
          .groups_travel_alone = deal.travel_alone,
          .exchange = exchange_memory(config, ranks),
          .telemetry = train.telemetry_every > 0,
          .document_mask = config.data.document_mask,
          .moments = moment_storage(config.optim)};
}

Dataset open_dataset(Threads& threads, const Config& config) {
  return Dataset(threads, config.data,
                 {.sequence = config.train.sequence,
                  .vocab = config.model.vocab,
                  .samples = step_count(config.train) * config.train.batch,
                  .seed = config.train.data_seed()});
}

}  // namespace tetrad
