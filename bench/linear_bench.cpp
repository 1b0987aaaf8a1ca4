// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"
#include "tetrad/model/linear.h"

namespace tetrad::bench {
namespace {

/// A layer that has seen its weights change, as in every step of training.
class Layer {
 public:
  Layer(Backend& backend, const std::string& recipe, std::int64_t tokens, std::int64_t out, std::int64_t in)
      : scratch_(backend),
        recipe_(precision(recipe), kBlocks),
        x_(random_tensor(backend, DType::bf16, tokens, in, 1)),
        dy_(random_tensor(backend, DType::bf16, tokens, out, 2)),
        y_(backend.make_tensor(DType::bf16, tokens, out)),
        dx_(backend.make_tensor(DType::bf16, tokens, in)) {
    weight_.value = random_tensor(backend, DType::f32, out, in, 3);
    weight_.gradient = backend.make_tensor(DType::f32, out, in);
    backend.set_to_zero(weight_.gradient.bytes());
    linear_ = std::make_unique<Linear>(backend, scratch_, weight_, name(), kBlocks / 2, 0, DType::bf16);
  }

  void step() {
    Pass pass;
    pass.recipe = &recipe_;
    pass.training = true;
    pass.step = ++step_;
    ++weight_.version;
    const MutableMatrixView dx = dx_.view();
    linear_->forward(pass, x_.const_view(), y_.view());
    linear_->backward(pass, dy_.const_view(), &dx);
  }

 private:
  static constexpr std::int64_t kBlocks =
      64;  //!< a layer in the middle of so many is what the recipe is about
  static std::string name() { return "blocks." + std::to_string(kBlocks / 2) + ".up"; }
  static PrecisionConfig precision(const std::string& recipe) {
    PrecisionConfig config;
    config.recipe = recipe;
    return config;
  }

  Scratch scratch_;
  Recipe recipe_;
  Tensor x_, dy_, y_, dx_;
  Parameter weight_;
  std::unique_ptr<Linear> linear_;
  std::uint32_t step_ = 0;
};

}  // namespace

void linear(Backend& backend, std::int64_t tokens, std::int64_t out, std::int64_t in, int repeats,
            const Report& report) {
  Layer bf16(backend, "bf16", tokens, out, in);
  ReferenceProduct reference(backend, tokens, out, in);
  const double gigaflop = 3e-9 * reference.flop();
  const Pair alone = Stopwatch(backend, repeats).measure([&] { bf16.step(); }, [&] { reference(); });
  report({"bf16, forward + backward", "GFLOP/s", gigaflop / alone.work, gigaflop / 3 / alone.ceiling,
          reference.name()});
  for (const char* recipe : {"nvfp4", "mxfp4", "fp8"}) {
    Layer layer(backend, recipe, tokens, out, in);
    const Pair pair = Stopwatch(backend, repeats).measure([&] { layer.step(); }, [&] { bf16.step(); });
    report({std::string(recipe) + ", forward + backward", "GFLOP/s", gigaflop / pair.work,
            gigaflop / pair.ceiling, "bf16"});
  }
}

}  // namespace tetrad::bench
