#include <cmath>

#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

void attention(Backend& backend, const AttentionCase& c, int repeats, const Report& report) {
  const std::int64_t tokens = c.batch * c.sequence;
  const std::int64_t q_width = c.heads * c.head_dim;
  const std::int64_t kv_width = c.kv_heads * c.head_dim;
  const AttentionShape shape{c.batch,    c.sequence, c.heads,
                             c.kv_heads, c.head_dim, 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  const Tensor qkv = random_tensor(backend, DType::bf16, tokens, q_width + 2 * kv_width, 1);
  const Tensor dout = random_tensor(backend, DType::bf16, tokens, q_width, 2);
  Tensor out = backend.make_tensor(DType::bf16, tokens, q_width);
  Tensor dqkv = backend.make_tensor(DType::bf16, tokens, q_width + 2 * kv_width);
  Tensor log_sum_exp = backend.make_tensor(DType::f32, 1, tokens * c.heads);
  const MatrixView in = qkv.const_view();
  const MutableMatrixView gradient = dqkv.view();
  const auto forward = [&] {
    backend.attention(AttentionForward{shape, columns(in, 0, q_width), columns(in, q_width, kv_width),
                                       columns(in, q_width + kv_width, kv_width), out.view(),
                                       log_sum_exp.f32()});
  };
  const auto backward = [&] {
    backend.attention(AttentionBackward{shape, columns(in, 0, q_width), columns(in, q_width, kv_width),
                                        columns(in, q_width + kv_width, kv_width), out.const_view(),
                                        log_sum_exp.f32(), dout.const_view(), columns(gradient, 0, q_width),
                                        columns(gradient, q_width, kv_width),
                                        columns(gradient, q_width + kv_width, kv_width)});
  };
  // Two products of half the square each; the backward pass counts 2.5 times that.
  const double gigaflop =
      2e-9 * static_cast<double>(tokens) * static_cast<double>(c.sequence) * static_cast<double>(q_width);
  ReferenceProduct reference(backend, 4096, 4096, 4096);
  const double ceiling = 1e-9 * reference.flop();
  const Pair alone = Stopwatch(backend, repeats).measure(forward, [&] { reference(); });
  report({"forward", "GFLOP/s", gigaflop / alone.work, ceiling / alone.ceiling, reference.name()});
  const Pair both = Stopwatch(backend, repeats)
                        .measure(
                            [&] {
                              forward();
                              backward();
                            },
                            [&] { reference(); });
  report({"forward + backward", "GFLOP/s", 3.5 * gigaflop / both.work, ceiling / both.ceiling,
          reference.name()});
}

}  // namespace tetrad::bench
