// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "benchmarks.h"
#include "busy_loops.h"
#include "tetrad/backend/memory.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::bench {
namespace {

PrecisionConfig precision(const std::string& recipe) {
  PrecisionConfig config;
  config.recipe = recipe;
  return config;
}

/// A model that trains on random tokens, a whole optimizer step at a time.
class Stepper {
 public:
  Stepper(Backend& backend, const ModelConfig& model, const std::string& recipe, const StepCase& c)
      : recipe_(precision(recipe), model.blocks()),
        decoder_(backend, model, c.batch, c.sequence, DType::bf16, c.recompute),
        optimizer_(backend, decoder_.parameters(), {}),
        tokens_(static_cast<std::size_t>(c.batch * c.sequence)),
        losses_(tokens_.size()) {
    decoder_.initialize(1);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(model.vocab));
  }

  void step() {
    ++steps_;
    Pass pass = this_pass();
    decoder_.clear_gradients();
    decoder_.train(pass, tokens_, tokens_, gradient_scale(), losses_);
    optimizer_.step(steps_, 1e-4, optimizer_.inspect().norm);
  }

  /// Forward and backward once more, with nothing to wait for.
  void differentiate() {
    Pass pass = this_pass();
    decoder_.differentiate(pass, gradient_scale());
  }

 private:
  Pass this_pass() const {
    Pass pass;
    pass.recipe = &recipe_;
    pass.step = static_cast<std::uint32_t>(steps_);
    return pass;
  }
  float gradient_scale() const { return 1.0f / static_cast<float>(tokens_.size()); }

  Recipe recipe_;
  Decoder decoder_;
  AdamWOptimizer optimizer_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> losses_;
  std::int64_t steps_ = 0;
};

}  // namespace

void step(Backend& backend, const ModelConfig& model, const std::vector<std::string>& recipes,
          const StepCase& c, int repeats, const Report& report) {
  const auto tokens = static_cast<double>(c.batch * c.sequence);
  const Stopwatch stopwatch(backend, repeats);
  /// A model that has made its first step, and so has all of its memory, which is reported.
  const auto make = [&](const std::string& recipe) {
    const std::optional<std::int64_t> before = backend.restart_peak();
    auto stepper = std::make_unique<Stepper>(backend, model, recipe, c);
    stepper->step();
    if (before) {
      const MemoryEstimate estimate =
          estimate_memory(model, Recipe(precision(recipe), model.blocks()),
                          {.batch = c.batch, .sequence = c.sequence, .recompute = c.recompute},
                          memory_traits(backend.name()));
      report({recipe + " peak memory", "GB", static_cast<double>(backend.peak_memory() - *before) / 1e9,
              estimate.total() / 1e9, "prediction"});
    }
    return stepper;
  };
  /// What launches cost: passes whose kernels are launched one by one, beside a record of them.
  const auto compare_launches = [&](const std::string& recipe, Stepper& stepper) {
    stepper.differentiate();  // quantizes the weights, which the last step changed
    const std::function<void()> replay = backend.record([&] { stepper.differentiate(); });
    if (!replay) return;
    const Pair pair = stopwatch.measure([&] { stepper.differentiate(); }, replay);
    report({recipe + " forward + backward", "tokens/s", tokens / pair.work, tokens / pair.ceiling,
            "the same without launches"});
  };
  // One model at a time and BF16: together they may need more memory than there is.
  const auto bf16 = make("bf16");
  PeakProduct reference(backend);
  const Pair seconds = stopwatch.measure([&] { bf16->step(); }, [&] { reference(); });
  const double flop_per_token = training_flops_per_token(model, c.sequence);
  report({"bf16 step", "tokens/s", tokens / seconds.work, reference.flop() / seconds.ceiling / flop_per_token,
          "its FLOP at the speed of the " + reference.name()});
  compare_launches("bf16", *bf16);

  for (const std::string& recipe : recipes) {
    if (recipe == "bf16") continue;
    const auto stepper = make(recipe);
    const Pair pair = stopwatch.measure([&] { stepper->step(); }, [&] { bf16->step(); });
    report({recipe + " step", "tokens/s", tokens / pair.work, tokens / pair.ceiling, "bf16 step"});
    compare_launches(recipe, *stepper);
  }
}

void step_beside(Backend& backend, const ModelConfig& model, const std::vector<std::string>& recipes,
                 const StepCase& c, int loops, int repeats, const Report& report) {
  // Long beside what a scheduler takes to find a new balance, and to tire of it.
  constexpr double kTurn = 1.0;
  const auto tokens = static_cast<double>(c.batch * c.sequence);
  for (const std::string& recipe : recipes) {
    Stepper stepper(backend, model, recipe, c);
    stepper.step();
    const auto seconds_per_step = [&](int count) {
      const BusyLoops others(count);
      double seconds = 0;
      int steps = 0;
      for (; seconds < kTurn; ++steps) seconds += seconds_of(backend, [&] { stepper.step(); });
      return seconds / steps;
    };
    std::vector<double> alone;
    std::vector<double> beside;
    for (int i = 0; i < repeats; ++i) {
      alone.push_back(seconds_per_step(0));
      beside.push_back(seconds_per_step(loops));
    }
    report({fmt::format("{} step beside {} busy loop{}", recipe, loops, loops == 1 ? "" : "s"), "tokens/s",
            tokens / median(beside), tokens / median(alone), "the same alone"});
  }
}

}  // namespace tetrad::bench
