// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {

void mamba(Backend& backend, const MambaCase& c, int repeats, const Report& report) {
  const Mamba2Shape shape{c.batch, c.sequence, c.heads, c.head_dim, c.groups, c.state, c.chunk};
  const std::int64_t tokens = c.batch * c.sequence;
  const std::int64_t state_width = c.groups * c.state;
  const Tensor xbc = random_tensor(backend, DType::bf16, tokens, shape.conv_channels(), 1);
  const Tensor dt = random_tensor(backend, DType::bf16, tokens, c.heads, 2);
  const Tensor dy = random_tensor(backend, DType::bf16, tokens, shape.inner(), 3);
  const Tensor heads = random_tensor(backend, DType::f32, 3, c.heads, 4);
  Tensor y = backend.make_tensor(DType::bf16, tokens, shape.inner());
  Tensor dxbc = backend.make_tensor(DType::bf16, tokens, shape.conv_channels());
  Tensor ddt = backend.make_tensor(DType::bf16, tokens, c.heads);
  Tensor dheads = backend.make_tensor(DType::f32, 3, c.heads);
  Tensor states = backend.make_tensor(DType::f32, c.batch * shape.chunks(), shape.inner() * c.state);
  backend.set_to_zero(dheads.bytes());
  const auto x_of = [&](const auto& view) { return columns(view, 0, shape.inner()); };
  const auto b_of = [&](const auto& view) { return columns(view, shape.inner(), state_width); };
  const auto c_of = [&](const auto& view) { return columns(view, shape.inner() + state_width, state_width); };
  const MatrixView in = xbc.const_view();
  const ScanInputs inputs{x_of(in),
                          b_of(in),
                          c_of(in),
                          dt.const_view(),
                          heads.f32(),
                          heads.f32() + c.heads,
                          heads.f32() + 2 * c.heads};
  const auto forward = [&] { backend.scan(ScanForward{shape, inputs, y.view(), states.f32()}); };
  const auto backward = [&] {
    const MutableMatrixView out = dxbc.view();
    backend.scan(ScanBackward{shape, inputs, states.f32(), dy.const_view(), x_of(out), b_of(out), c_of(out),
                              ddt.view(), dheads.f32(), dheads.f32() + c.heads, dheads.f32() + 2 * c.heads});
  };
  Tensor copied = backend.make_tensor(DType::bf16, tokens, shape.conv_channels());
  const auto floor = [&] { backend.copy(xbc.bytes(), copied.bytes()); };
  const Pair alone = Stopwatch(backend, repeats).measure(forward, floor);
  report({"forward", "calls/s", 1 / alone.work, 1 / alone.ceiling, "copy of x, B, C"});
  const Pair both = Stopwatch(backend, repeats)
                        .measure(
                            [&] {
                              forward();
                              backward();
                            },
                            floor);
  report({"forward + backward", "calls/s", 1 / both.work, 1 / both.ceiling, "copy of x, B, C"});
}

}  // namespace tetrad::bench
