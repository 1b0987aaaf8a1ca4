// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {
namespace {

/// Elements of each tensor.
constexpr std::int64_t kTensorElements = std::int64_t{1} << 24;

/// A model's parameters as the optimizer sees them, in tensors of equal size.
class Parameters {
 public:
  Parameters(Backend& backend, std::int64_t count, DType moments) {
    for (std::int64_t left = count; left > 0; left -= kTensorElements) {
      const std::int64_t size = std::min(left, kTensorElements);
      const auto seed = static_cast<std::uint32_t>(tensors_.size());
      weights_.push_back(random_tensor(backend, DType::f32, 1, size, 2 * seed));
      gradients_.push_back(random_tensor(backend, DType::f32, 1, size, 2 * seed + 1));
      for (int i = 0; i < 2; ++i) {
        moments_.push_back(backend.make_tensor(moments, 1, size));
        backend.set_to_zero(moments_.back().bytes());
      }
      tensors_.push_back({.weight = weights_.back().f32(),
                          .gradient = gradients_.back().f32(),
                          .first_moment = moments_[moments_.size() - 2].bytes().data(),
                          .second_moment = moments_.back().bytes().data(),
                          .size = size,
                          .moments = moments,
                          .parameter = seed});
    }
  }
  std::span<const AdamWTensor> tensors() const { return tensors_; }

 private:
  std::vector<Tensor> weights_, gradients_, moments_;
  std::vector<AdamWTensor> tensors_;
};

}  // namespace

void optimizer(Backend& backend, std::int64_t parameters, int repeats, const Report& report) {
  Tensor from = backend.make_tensor(DType::f32, 1, parameters);
  Tensor to = backend.make_tensor(DType::f32, 1, parameters);
  backend.set_to_zero(from.bytes());
  const auto gb = [&](std::int64_t bytes_per_parameter) {
    return 1e-9 * static_cast<double>(parameters * bytes_per_parameter);
  };
  const auto measure = [&](const char* name, std::int64_t bytes_per_parameter,
                           const std::function<void()>& work) {
    const Pair seconds =
        Stopwatch(backend, repeats).measure(work, [&] { backend.copy(from.bytes(), to.bytes()); });
    report({name, "GB/s", gb(bytes_per_parameter) / seconds.work, gb(8) / seconds.ceiling, "copy"});
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    const Parameters model(backend, parameters, type);
    std::int64_t step = 0;
    // Weight and moments are read and written, the gradient is read.
    measure(type == DType::f32 ? "AdamW" : "AdamW, moments in BF16", 12 + 2 * moment_bytes(1, type),
            [&] { backend.adamw({.tensors = model.tensors(), .step = ++step, .learning_rate = 1e-4f}); });
    if (type == DType::f32)
      measure("norm of the gradients", 4, [&] { backend.squared_norms(model.tensors()); });
  }
}

}  // namespace tetrad::bench
