// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

void loss(Backend& backend, std::int64_t tokens, std::int64_t vocab, std::int64_t width, int repeats,
          const Report& report) {
  const Tensor hidden = random_tensor(backend, DType::bf16, tokens, width, 1);
  const Tensor head = random_tensor(backend, DType::bf16, vocab, width, 2);
  Tensor targets = backend.make_tensor(DType::i32, 1, tokens);
  std::vector<std::int32_t> classes(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(vocab));
  backend.upload(std::as_bytes(std::span(classes)), targets.bytes());
  Tensor losses = backend.make_tensor(DType::f32, 1, tokens);
  Tensor dhidden = backend.make_tensor(DType::bf16, tokens, width);
  Tensor dhead = backend.make_tensor(DType::f32, vocab, width);
  backend.set_to_zero(dhead.bytes());

  CrossEntropy forward;
  forward.hidden = hidden.const_view();
  forward.head = head.const_view();
  forward.targets = targets.i32();
  forward.losses = losses.f32();
  CrossEntropy both = forward;
  both.gradient_scale = 1.0f / static_cast<float>(tokens);
  both.dhidden = dhidden.view();
  both.dhead = dhead.f32();

  PeakProduct peak(backend);
  const double gigaflop =
      2e-9 * static_cast<double>(tokens) * static_cast<double>(vocab) * static_cast<double>(width);
  const auto measure = [&](const char* name, int products, const CrossEntropy& op) {
    const Pair seconds =
        Stopwatch(backend, repeats).measure([&] { backend.cross_entropy(op); }, [&] { peak(); });
    report({name, "GFLOP/s", products * gigaflop / seconds.work, 1e-9 * peak.flop() / seconds.ceiling,
            peak.name()});
  };
  measure("forward", 1, forward);
  measure("forward + backward", 3, both);
}

}  // namespace tetrad::bench
