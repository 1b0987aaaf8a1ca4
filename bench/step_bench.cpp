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
#include "tetrad/train/memory_plan.h"

namespace tetrad::bench {
namespace {

/// What the configuration says of its precision is about recipes other than bf16, which they stand beside.
Config with_recipe(Config config, const std::string& recipe) {
  if (recipe == "bf16") config.precision = {};
  config.precision.recipe = recipe;
  return config;
}

/// A model that trains on random tokens, a whole optimizer step at a time.
class Stepper {
 public:
  Stepper(Backend& backend, const Config& config, const MemoryPlan& plan)
      : microbatches_(config.train.batch / config.train.microbatch),
        recipe_(config.precision, config.model.blocks()),
        decoder_(backend, config.model, config.train.microbatch, config.train.sequence, DType::bf16,
                 plan.recompute),
        optimizer_(backend, decoder_.parameters(), {}, plan.host_moments),
        tokens_(static_cast<std::size_t>(config.train.microbatch * config.train.sequence)),
        losses_(tokens_.size()) {
    decoder_.initialize(1);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(config.model.vocab));
  }

  void step() {
    ++steps_;
    decoder_.clear_gradients();
    for (std::int64_t i = 0; i < microbatches_; ++i) {
      Pass pass = this_pass();
      pass.microbatch = static_cast<std::uint32_t>(i);
      decoder_.train(pass, tokens_, tokens_, gradient_scale(), losses_);
    }
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
  float gradient_scale() const {
    return 1.0f / static_cast<float>(static_cast<std::int64_t>(tokens_.size()) * microbatches_);
  }

  std::int64_t microbatches_;
  Recipe recipe_;
  Decoder decoder_;
  AdamWOptimizer optimizer_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> losses_;
  std::int64_t steps_ = 0;
};

/// Steps of one configuration after another, each beside what bounds it.
class StepBench {
 public:
  StepBench(Backend& backend, const Config& config, int repeats, const Report& report)
      : backend_(backend),
        config_(config),
        room_(room_for(config.run, &backend)),
        repeats_(repeats),
        stopwatch_(backend, repeats),
        report_(report) {}

  void run(const std::vector<std::string>& recipes) {
    auto bf16 = make("bf16");
    const double bf16_seconds = measure_bf16(*bf16);
    compare_launches("bf16", *bf16);
    for (const std::string& recipe : recipes) {
      if (recipe == "bf16") continue;
      if (bf16 && !fit_together("bf16", recipe)) bf16.reset();
      if (!bf16 && fit_together("bf16", recipe)) bf16 = make("bf16");
      const auto stepper = make(recipe);
      const Pair pair = bf16 ? stopwatch_.measure([&] { stepper->step(); }, [&] { bf16->step(); })
                             : Pair{seconds_alone(*stepper), bf16_seconds};
      report_({recipe + " step", "tokens/s", tokens() / pair.work, tokens() / pair.ceiling,
               bf16 ? "bf16 step" : "bf16 step before it"});
      compare_launches(recipe, *stepper);
    }
  }

 private:
  double tokens() const { return static_cast<double>(config_.train.batch * config_.train.sequence); }
  MemoryPlan plan(const std::string& recipe) const {
    return plan_memory(with_recipe(config_, recipe), memory_traits(backend_.name()), room_);
  }
  bool fit_together(const std::string& one, const std::string& other) const {
    const MemoryPlan first = plan(one);
    const MemoryPlan second = plan(other);
    const double device = first.estimate.total() + second.estimate.total();
    return !room_.device ||
           (device <= static_cast<double>(*room_.device) && first.host_moments + second.host_moments == 0);
  }

  /// A model that has made its first step, and so has all of its memory, which is reported.
  std::unique_ptr<Stepper> make(const std::string& recipe) {
    const MemoryPlan plan = this->plan(recipe);
    const std::optional<std::int64_t> before = backend_.restart_peak();
    auto stepper = std::make_unique<Stepper>(backend_, with_recipe(config_, recipe), plan);
    stepper->step();
    if (before)
      report_({fmt::format("{} peak memory ({})", recipe, describe(plan)), "GB",
               static_cast<double>(backend_.peak_memory() - *before) / 1e9, plan.estimate.total() / 1e9,
               "prediction"});
    return stepper;
  }

  double measure_bf16(Stepper& bf16) {
    PeakProduct reference(backend_);
    const Pair seconds = stopwatch_.measure([&] { bf16.step(); }, [&] { reference(); });
    const double flop_per_token = training_flops_per_token(config_.model, config_.train.sequence);
    report_({"bf16 step", "tokens/s", tokens() / seconds.work,
             reference.flop() / seconds.ceiling / flop_per_token,
             "its FLOP at the speed of the " + reference.name()});
    return seconds.work;
  }

  double seconds_alone(Stepper& stepper) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats_; ++i) seconds.push_back(seconds_of(backend_, [&] { stepper.step(); }));
    return median(seconds);
  }

  /// What launches cost: passes whose kernels are launched one by one, beside a record of them.
  void compare_launches(const std::string& recipe, Stepper& stepper) {
    stepper.differentiate();  // quantizes the weights, which the last step changed
    const std::function<void()> replay = backend_.record([&] { stepper.differentiate(); });
    if (!replay) return;
    const double pass = static_cast<double>(config_.train.microbatch * config_.train.sequence);
    const Pair pair = stopwatch_.measure([&] { stepper.differentiate(); }, replay);
    report_({recipe + " forward + backward", "tokens/s", pass / pair.work, pass / pair.ceiling,
             "the same without launches"});
  }

  Backend& backend_;
  const Config& config_;
  Room room_;
  int repeats_;
  Stopwatch stopwatch_;
  const Report& report_;
};

}  // namespace

void step(Backend& backend, const Config& config, const std::vector<std::string>& recipes, int repeats,
          const Report& report) {
  StepBench(backend, config, repeats, report).run(recipes);
}

void step_beside(Backend& backend, const Config& config, const std::vector<std::string>& recipes, int loops,
                 int repeats, const Report& report) {
  // Long beside what a scheduler takes to find a new balance, and to tire of it.
  constexpr double kTurn = 1.0;
  const auto tokens = static_cast<double>(config.train.batch * config.train.sequence);
  for (const std::string& recipe : recipes) {
    const Config c = with_recipe(config, recipe);
    Stepper stepper(backend, c,
                    plan_memory(c, memory_traits(backend.name()), room_for(config.run, &backend)));
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
