#include "benchmarks.h"
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
  Stepper(Backend& backend, const ModelConfig& model, const std::string& recipe, std::int64_t batch,
          std::int64_t sequence)
      : recipe_(precision(recipe), model.blocks()),
        decoder_(backend, model, batch, sequence),
        optimizer_(backend, decoder_.parameters(), {}),
        tokens_(static_cast<std::size_t>(batch * sequence)),
        losses_(tokens_.size()) {
    decoder_.initialize(1);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(model.vocab));
  }

  void step() {
    Pass pass;
    pass.recipe = &recipe_;
    pass.step = static_cast<std::uint32_t>(++steps_);
    decoder_.clear_gradients();
    decoder_.train(pass, tokens_, tokens_, 1.0f / static_cast<float>(tokens_.size()), losses_);
    optimizer_.step(steps_, 1e-4, optimizer_.inspect().norm);
  }

 private:
  Recipe recipe_;
  Decoder decoder_;
  AdamWOptimizer optimizer_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> losses_;
  std::int64_t steps_ = 0;
};

}  // namespace

void step(Backend& backend, const ModelConfig& model, const std::vector<std::string>& recipes,
          std::int64_t batch, std::int64_t sequence, int repeats, const Report& report) {
  const auto tokens = static_cast<double>(batch * sequence);
  const Stopwatch stopwatch(backend, repeats);
  // One model at a time and BF16: together they may need more memory than there is.
  Stepper bf16(backend, model, "bf16", batch, sequence);
  const std::int64_t edge = backend.name() == "cpu" ? 1024 : 8192;
  ReferenceProduct reference(backend, edge, edge, edge);
  const Pair seconds = stopwatch.measure([&] { bf16.step(); }, [&] { reference(); });
  const double flop_per_token = training_flops_per_token(model, sequence);
  report({"bf16 step", "tokens/s", tokens / seconds.work, reference.flop() / seconds.ceiling / flop_per_token,
          std::string("its FLOP at the speed of the ") + reference.name()});

  for (const std::string& recipe : recipes) {
    if (recipe == "bf16") continue;
    Stepper stepper(backend, model, recipe, batch, sequence);
    const Pair pair = stopwatch.measure([&] { stepper.step(); }, [&] { bf16.step(); });
    report({recipe + " step", "tokens/s", tokens / pair.work, tokens / pair.ceiling, "bf16 step"});
  }
}

}  // namespace tetrad::bench
