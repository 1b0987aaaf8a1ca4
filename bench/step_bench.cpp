#include <cblas.h>

#include "benchmarks.h"
#include "random_data.h"
#include "tetrad/core/threads.h"
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
  Stepper(const ModelConfig& model, const std::string& recipe, std::int64_t batch, std::int64_t sequence)
      : recipe_(precision(recipe), model.blocks()),
        decoder_(cpu_backend(), model, batch, sequence),
        optimizer_(cpu_backend(), decoder_.parameters(), {}),
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

void step(const ModelConfig& model, std::int64_t batch, std::int64_t sequence, int repeats,
          const Report& report) {
  const auto tokens = static_cast<double>(batch * sequence);
  Stepper bf16(model, "bf16", batch, sequence);

  // Beside what the same FLOP would take if all of them were one large product.
  constexpr blasint kEdge = 1024;
  constexpr double kProductFlop = 2.0 * kEdge * kEdge * kEdge;
  const Buffer a = random_f32(kEdge * kEdge);
  Buffer out(a.size());
  const Pair seconds = measure(
      repeats, [&] { bf16.step(); },
      [&] {
        openblas_set_num_threads(thread_count());
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kEdge, kEdge, kEdge, 1.0f, a.as<float>(), kEdge,
                    a.as<float>(), kEdge, 0.0f, out.as<float>(), kEdge);
        openblas_set_num_threads(1);
      });
  const double flop_per_token = training_flops_per_token(model, sequence);
  report({"bf16 step", "tokens/s", tokens / seconds.work, kProductFlop / seconds.ceiling / flop_per_token,
          "its FLOP at SGEMM speed"});

  for (const char* recipe : {"fp8", "mxfp4", "nvfp4"}) {
    Stepper stepper(model, recipe, batch, sequence);
    const Pair pair = measure(
        repeats, [&] { stepper.step(); }, [&] { bf16.step(); });
    report(
        {std::string(recipe) + " step", "tokens/s", tokens / pair.work, tokens / pair.ceiling, "bf16 step"});
  }
}

}  // namespace tetrad::bench
