// SPDX-License-Identifier: Apache-2.0
#include "dry_run.h"

#include <fmt/format.h>

#include <set>

#include "tetrad/backend/memory.h"
#include "tetrad/model/estimate.h"
#include "tetrad/train/trainer.h"

namespace tetrad::app {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.3f} GB", bytes / 1e9); }

void print_sizes(const Config& config, const Recipe& recipe, std::string_view backend) {
  const std::int64_t steps = step_count(config.train);
  const double tokens = static_cast<double>(steps * config.train.batch * config.train.sequence);
  const double per_token = training_flops_per_token(config.model, config.train.sequence);
  const MemoryEstimate memory =
      estimate_memory(config.model, recipe, memory_case(config), memory_traits(backend));
  fmt::print("\n# sizes\nparameters   {:L}\n", parameter_count(config.model));
  fmt::print("steps        {} of {} sequences of {} tokens: {:.4g} tokens\n", steps, config.train.batch,
             config.train.sequence, tokens);
  if (config.data.document_mask)
    fmt::print("documents    masked: attention, scan and positions do not cross them\n");
  fmt::print("FLOP         {:.4g} per token, {:.4g} in all\n", per_token, per_token * tokens);
  fmt::print(
      "memory       {} on {} = weights {} + gradients {} + optimizer {} + operands {} + activations {} + "
      "scratch {}\n",
      gigabytes(memory.total()), backend, gigabytes(memory.weights), gigabytes(memory.gradients),
      gigabytes(memory.optimizer), gigabytes(memory.operands), gigabytes(memory.activations),
      gigabytes(memory.scratch));
}

void print_precision(const Config& config, const Recipe& recipe) {
  std::set<double> starts = {0};
  for (const PrecisionSwitch& change : config.precision.schedule) starts.insert(change.at);
  for (const double start : starts) {
    fmt::print("\n# precision of every GEMM from {:g} % of the tokens on\n", 100 * start);
    for (std::int64_t block = 0; block < config.model.blocks(); ++block)
      for (const LinearShape& linear :
           linear_shapes(config.model, config.model.pattern[static_cast<std::size_t>(block)])) {
        const std::string name = fmt::format("blocks.{}.{}", block, linear.name);
        fmt::print("{:<16} {}\n", name, describe(recipe.at({name, block}, start), config.precision.storage));
      }
    fmt::print("{:<16} {} operands, f32 accumulation\n", "embedding, head", config.precision.storage);
  }
}

}  // namespace

void print_dry_run(const Config& config, const Provenance& provenance, std::string_view backend) {
  const Recipe recipe(config.precision, config.model.blocks());
  fmt::print("# configuration\n{}", explain(config, provenance));
  print_sizes(config, recipe, backend);
  print_precision(config, recipe);
}

}  // namespace tetrad::app
