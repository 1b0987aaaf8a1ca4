// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks.h"
#include "busy_loops.h"
#include "profile.h"
#include "tetrad/backend/memory.h"
#include "tetrad/model/decoder.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/flops.h"
#include "tetrad/optim/adamw_optimizer.h"
#include "tetrad/train/memory_plan.h"
#include "with_recipe.h"

namespace tetrad::bench {
namespace {

/// A model that trains on random tokens, a whole optimizer step at a time.
class Stepper {
 public:
  Stepper(Backend& backend, const Config& config, const MemoryPlan& plan)
      : microbatches_(config.train.batch / config.train.microbatch),
        recipe_(config.precision, config.model.blocks()),
        decoder_(backend, config.model, config.train.microbatch, config.train.sequence, DType::bf16,
                 plan.levers),
        optimizer_(backend, decoder_.parameters(), {}, plan.host_moments),
        tokens_(static_cast<std::size_t>(config.train.microbatch * config.train.sequence)),
        losses_(tokens_.size()) {
    decoder_.initialize(1);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(config.model.vocab));
  }

  void step() { step(microbatches_); }
  void step(std::int64_t microbatches) {
    ++steps_;
    decoder_.clear_gradients();
    for (std::int64_t i = 0; i < microbatches; ++i) accumulate(i);
    optimizer_.step(steps_, 1e-4, optimizer_.inspect().norm);
  }

  /// Forward and backward of one microbatch.
  void accumulate(std::int64_t microbatch) {
    Pass pass = this_pass();
    pass.microbatch = static_cast<std::uint32_t>(microbatch);
    decoder_.train(pass, tokens_, tokens_, gradient_scale(), losses_);
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
    const bool one_at_a_time =
        std::ranges::any_of(recipes, [&](const std::string& recipe) { return !fits_beside_bf16(recipe); });
    if (one_at_a_time)
      measure_one_after_the_other(recipes);
    else
      measure_in_turns(recipes);
  }

 private:
  double tokens() const { return static_cast<double>(config_.train.batch * config_.train.sequence); }
  double tokens_of_pass() const {
    return static_cast<double>(config_.train.microbatch * config_.train.sequence);
  }
  MemoryPlan plan(const std::string& recipe) const {
    return plan_memory(with_recipe(config_, recipe), memory_traits(backend_.name()), room_);
  }
  bool fits_beside_bf16(const std::string& recipe) const {
    const MemoryPlan one = plan("bf16");
    const MemoryPlan other = plan(recipe);
    return !room_.device ||
           (one.estimate.host() + other.estimate.host() == 0 &&
            one.estimate.total() + other.estimate.total() <= static_cast<double>(*room_.device));
  }

  void measure_in_turns(const std::vector<std::string>& recipes) {
    const auto bf16 = make("bf16", plan("bf16"));
    measure_bf16(*bf16);
    compare_launches("bf16", *bf16);
    for (const std::string& recipe : recipes) {
      if (recipe == "bf16") continue;
      const auto stepper = make(recipe, plan(recipe));
      const Pair pair = stopwatch_.measure([&] { stepper->step(); }, [&] { bf16->step(); });
      report_speed(recipe, pair.work, pair.ceiling);
      compare_launches(recipe, *stepper);
    }
  }

  /// Where two models would not fit, each with the plan of its recipe.
  void measure_one_after_the_other(const std::vector<std::string>& recipes) {
    const auto measure = [&](const std::string& recipe) {
      const auto stepper = make(recipe, plan(recipe));
      const double step = median_seconds([&] { stepper->step(); });
      const double pass = median_seconds([&] { stepper->accumulate(0); });
      report_({recipe + " step, update included", "tokens/s", tokens() / step, tokens_of_pass() / pass,
               "its microbatches"});
      return step;
    };
    const double bf16 = measure("bf16");
    {
      const PeakProduct reference(backend_);
      report_bf16(bf16, reference.flop() / reference.seconds(), reference.name());
    }
    for (const std::string& recipe : recipes)
      if (recipe != "bf16") report_speed(recipe, measure(recipe), bf16);
  }

  void report_speed(const std::string& recipe, double seconds, double bf16_seconds) {
    report_({recipe + " step", "tokens/s", tokens() / seconds, tokens() / bf16_seconds, "bf16 step"});
  }

  /// A model that has made a short step, and so has all of its memory, which is reported.
  std::unique_ptr<Stepper> make(const std::string& recipe, const MemoryPlan& plan) {
    const std::optional<std::int64_t> before = backend_.restart_peak();
    auto stepper = std::make_unique<Stepper>(backend_, with_recipe(config_, recipe), plan);
    stepper->step(1);
    if (before)
      report_({fmt::format("{} peak memory ({})", recipe, describe(plan, config_.model)), "GB",
               static_cast<double>(backend_.peak_memory() - *before) / 1e9, plan.estimate.total() / 1e9,
               "prediction"});
    return stepper;
  }

  void measure_bf16(Stepper& bf16) {
    PeakProduct reference(backend_);
    const Pair seconds = stopwatch_.measure([&] { bf16.step(); }, [&] { reference(); });
    report_bf16(seconds.work, reference.flop() / seconds.ceiling, reference.name());
  }
  void report_bf16(double seconds, double flops, const std::string& product) {
    report_({"bf16 step", "tokens/s", tokens() / seconds,
             flops / training_flops_per_token(config_.model, config_.train.sequence),
             "its FLOP at the speed of the " + product});
  }

  double median_seconds(const std::function<void()>& work) {
    std::vector<double> seconds;
    for (int i = 0; i < repeats_; ++i) seconds.push_back(seconds_of(backend_, work));
    return median(seconds);
  }

  /// What launches cost: passes whose kernels are launched one by one, beside a record of them.
  void compare_launches(const std::string& recipe, Stepper& stepper) {
    stepper.differentiate();  // quantizes the weights, which the last step changed
    const std::function<void()> replay = backend_.record([&] { stepper.differentiate(); });
    if (!replay) return;
    const double pass = tokens_of_pass();
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

void profile_step(Backend& backend, const Config& config, const std::vector<std::string>& recipes,
                  int repeats, const Report& report) {
  const auto seconds_per_step = [&](Backend& on, const Config& c, const std::function<void()>& begin) {
    Stepper stepper(on, c, plan_memory(c, backend));
    stepper.step();
    begin();
    return seconds_of(
               backend, [&] { stepper.step(); }, repeats) /
           repeats;
  };
  const PeakProduct peak(backend);
  for (const std::string& recipe : recipes) {
    const Config c = with_recipe(config, recipe);
    const double unwatched = seconds_per_step(backend, c, [] {});
    ProfilingBackend profile(backend);
    const double step = seconds_per_step(profile, c, [&] { profile.take(); });
    report_profile({recipe, "step", step, repeats}, profile.take(), &peak, report);
    report({recipe + ": step, so measured", "ms", step * 1e3, unwatched * 1e3, "step that nobody watches"});
  }
}

void step_beside(Backend& backend, const Config& config, const std::vector<std::string>& recipes, int loops,
                 int repeats, const Report& report) {
  // Long beside what a scheduler takes to find a new balance, and to tire of it.
  constexpr double kTurn = 1.0;
  const auto tokens = static_cast<double>(config.train.batch * config.train.sequence);
  for (const std::string& recipe : recipes) {
    const Config c = with_recipe(config, recipe);
    Stepper stepper(backend, c, plan_memory(c, backend));
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
