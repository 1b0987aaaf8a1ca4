// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {
namespace {

/// One problem, its data and the time of its passes.
class AttentionWork {
 public:
  AttentionWork(Backend& backend, const AttentionCase& c)
      : backend_(backend),
        shape_{c.batch,    c.sequence, c.heads,
               c.kv_heads, c.head_dim, 1.0f / std::sqrt(static_cast<float>(c.head_dim))},
        q_width_(c.heads * c.head_dim),
        kv_width_(c.kv_heads * c.head_dim),
        qkv_(random_tensor(backend, DType::bf16, tokens(), q_width_ + 2 * kv_width_, 1)),
        dout_(random_tensor(backend, DType::bf16, tokens(), q_width_, 2)),
        out_(backend.make_tensor(DType::bf16, tokens(), q_width_)),
        dqkv_(backend.make_tensor(DType::bf16, tokens(), q_width_ + 2 * kv_width_)),
        log_sum_exp_(backend.make_tensor(DType::f32, 1, tokens() * c.heads)) {}

  const AttentionShape& shape() const { return shape_; }
  /// FLOP of the forward pass: two products, each over half of the score matrix.
  double gigaflop() const {
    return 2e-9 * static_cast<double>(tokens()) * static_cast<double>(shape_.sequence) *
           static_cast<double>(q_width_);
  }

  void forward() {
    const MatrixView in = qkv_.const_view();
    backend_.attention(AttentionForward{shape_, columns(in, 0, q_width_), columns(in, q_width_, kv_width_),
                                        columns(in, q_width_ + kv_width_, kv_width_), out_.view(),
                                        log_sum_exp_.f32()});
  }
  void backward() {
    const MatrixView in = qkv_.const_view();
    const MutableMatrixView gradient = dqkv_.view();
    backend_.attention(AttentionBackward{
        shape_, columns(in, 0, q_width_), columns(in, q_width_, kv_width_),
        columns(in, q_width_ + kv_width_, kv_width_), out_.const_view(), log_sum_exp_.f32(),
        dout_.const_view(), columns(gradient, 0, q_width_), columns(gradient, q_width_, kv_width_),
        columns(gradient, q_width_ + kv_width_, kv_width_)});
  }

 private:
  std::int64_t tokens() const { return shape_.batch * shape_.sequence; }

  Backend& backend_;
  AttentionShape shape_;
  std::int64_t q_width_, kv_width_;
  Tensor qkv_, dout_, out_, dqkv_, log_sum_exp_;
};

}  // namespace

void attention(Backend& backend, const AttentionCase& c, int repeats, const Report& report) {
  AttentionWork work(backend, c);
  ReferenceProduct reference(backend, 4096, 4096, 4096);
  const double ceiling = 1e-9 * reference.flop();
  const auto measure = [&](const std::string& name, double gigaflop, const std::function<void()>& passes) {
    const Pair times = Stopwatch(backend, repeats).measure(passes, [&] { reference(); });
    report({name, "GFLOP/s", gigaflop / times.work, ceiling / times.ceiling, reference.name()});
  };
  const std::pair<AttentionEngine, const char*> engines[] = {
      {AttentionEngine::best, ""},
      {AttentionEngine::own, ", own kernels"},
      {AttentionEngine::library, ", library"},
      {AttentionEngine::unrepeatable_library, ", library, unrepeatable gradients"}};
  for (const auto& [engine, name] : engines) {
    if (!backend.use_attention_engine(engine, work.shape())) continue;
    measure(std::string("forward") + name, work.gigaflop(), [&] { work.forward(); });
    // The backward pass counts 2.5 forward passes.
    measure(std::string("forward + backward") + name, 3.5 * work.gigaflop(), [&] {
      work.forward();
      work.backward();
    });
  }
  backend.use_attention_engine(AttentionEngine::best, work.shape());
}

}  // namespace tetrad::bench
