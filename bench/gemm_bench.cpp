// SPDX-License-Identifier: Apache-2.0
#include "benchmarks.h"
#include "random_data.h"

namespace tetrad::bench {
namespace {

struct Operands {
  std::string name;
  QuantSpec a, b;
};

std::vector<Operands> quantized_operands() {
  return {{"nvfp4 (1x16 . 16x16)", {.block = {1, 16}}, {.block = {16, 16}}},
          {"mxfp4 (1x32 . 1x32)",
           {.format = Format::mxfp4, .block = {1, 32}},
           {.format = Format::mxfp4, .block = {1, 32}}},
          {"fp8 (1x128 . 128x128)",
           {.format = Format::fp8, .block = {1, 128}},
           {.format = Format::fp8, .block = {128, 128}}}};
}

}  // namespace

void gemm(Backend& backend, std::int64_t m, std::int64_t n, std::int64_t k, int repeats,
          const Report& report) {
  const Tensor a = random_tensor(backend, DType::bf16, m, k, 1);
  const Tensor b = random_tensor(backend, DType::bf16, n, k, 2);
  Tensor out = backend.make_tensor(DType::bf16, m, n);
  ReferenceProduct reference(backend, m, n, k);
  const double gigaflop = 1e-9 * reference.flop();
  const auto run = [&](const std::string& name, const std::function<void()>& work) {
    const Pair seconds = Stopwatch(backend, repeats).measure(work, [&] { reference(); });
    report({name, "GFLOP/s", gigaflop / seconds.work, gigaflop / seconds.ceiling, reference.name()});
  };
  constexpr QuantizeOptions kOptions{.form = Form::operand, .telemetry = Telemetry::none};
  for (const Operands& operands : quantized_operands()) {
    QuantizedTensor qa;
    QuantizedTensor qb;
    run("quantize + gemm, " + operands.name, [&] {
      backend.quantize(a.const_view(), operands.a, kOptions, qa);
      backend.quantize(b.const_view(), operands.b, kOptions, qb);
      backend.gemm(qa, qb, out.view());
    });
    run("gemm alone, " + operands.name, [&] { backend.gemm(qa, qb, out.view()); });
  }
  run("gemm, bf16 . bf16", [&] { backend.gemm(a.const_view(), b.const_view(), out.view()); });
  const Tensor wide_a = random_tensor(backend, DType::f32, m, k, 1);
  const Tensor wide_b = random_tensor(backend, DType::f32, n, k, 2);
  Tensor wide_out = backend.make_tensor(DType::f32, m, n);
  run("gemm, f32 . f32", [&] { backend.gemm(wide_a.const_view(), wide_b.const_view(), wide_out.view()); });
}

}  // namespace tetrad::bench
