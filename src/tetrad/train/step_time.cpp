// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/step_time.h"

#include <algorithm>
#include <vector>

#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/flops.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/run_log.h"
#include "tetrad/train/run_parts.h"

namespace tetrad {
namespace {

constexpr double kFlopToMeasure = 1e11;     // of a microbatch on a CPU: about a second
constexpr double kMostFlop = 3e12;          // of a sequence on a CPU: about half a minute
constexpr double kSeconds = 2;              // that passes are repeated for …
constexpr int kMostPasses = 20;             // … at most
constexpr std::int64_t kTransformed = 128;  // no transform along tokens is longer

/// A part of the microbatch that a CPU can do in a second, if quantizers can take it.
std::int64_t sequences_to_measure(std::int64_t microbatch, std::int64_t sequence, double flop_per_sequence) {
  while (microbatch % 2 == 0 && microbatch / 2 * sequence % kTransformed == 0 &&
         static_cast<double>(microbatch) * flop_per_sequence > kFlopToMeasure)
    microbatch /= 2;
  return microbatch;
}

}  // namespace

std::optional<double> measure_step_seconds(const Config& config, Backend& backend) {
  const TrainConfig& train = config.train;
  const MemoryCase whole = memory_case(config, 1);
  const double flop =
      training_flops_per_token(config.model, train.sequence) * static_cast<double>(train.sequence);
  const bool on_cpu = backend.name() == "cpu";
  const std::int64_t batch = on_cpu ? sequences_to_measure(whole.batch, train.sequence, flop) : whole.batch;
  if (on_cpu && static_cast<double>(batch) * flop > kMostFlop) return std::nullopt;

  const MemoryPlan plan = plan_memory(config, backend);
  Decoder decoder(backend, config.model, batch, train.sequence, whole.storage, plan.levers);
  AdamWOptimizer optimizer(backend, decoder.parameters(), config.optim, plan.host_moments);
  decoder.initialize(train.init_seed());
  const Recipe recipe(config.precision, config.model.blocks());
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * train.sequence));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(config.model.vocab));
  std::vector<float> losses(inputs.size());
  const auto timed = [&](auto&& work) {
    const double begin = steady_seconds();
    work();
    return steady_seconds() - begin;
  };
  const auto read_once = [&] {
    Pass pass;
    pass.recipe = &recipe;
    pass.seed = train.rounding_seed();
    decoder.train(pass, inputs, inputs, 1.0f / static_cast<float>(inputs.size()), losses);
  };
  const auto update = [&] { optimizer.step(1, config.optim.lr, optimizer.inspect().norm); };
  read_once();  // the first ones allocate
  update();
  decoder.clear_gradients();
  double passes = 0;
  int count = 0;
  while (count == 0 || (passes < kSeconds && count < kMostPasses)) {
    passes += timed(read_once);
    ++count;
  }
  const double parts = static_cast<double>(train.batch) / static_cast<double>(batch);
  return passes / count * parts + timed([&] {
           update();
           decoder.weights_changed();
           optimizer.inspect();  // waits for a device
         });
}

}  // namespace tetrad
