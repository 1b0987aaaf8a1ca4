#include <cblas.h>

#include "benchmarks.h"
#include "random_data.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/backend.h"

namespace tetrad::bench {
namespace {

struct Operands {
  std::int64_t m, n, k;
  Buffer a, b;
  Buffer a_bf16, b_bf16;
  Buffer out;
};

void sgemm(Operands& data) {
  openblas_set_num_threads(thread_count());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(data.m),
              static_cast<blasint>(data.n), static_cast<blasint>(data.k), 1.0f, data.a.as<float>(),
              static_cast<blasint>(data.k), data.b.as<float>(), static_cast<blasint>(data.k), 0.0f,
              data.out.as<float>(), static_cast<blasint>(data.n));
  openblas_set_num_threads(1);
}

struct Recipe {
  std::string name;
  QuantSpec a, b;
};

std::vector<Recipe> recipes() {
  return {{"nvfp4 (1x16 . 16x16)", {.block = {1, 16}}, {.block = {16, 16}}},
          {"mxfp4 (1x32 . 1x32)",
           {.format = Format::mxfp4, .block = {1, 32}},
           {.format = Format::mxfp4, .block = {1, 32}}},
          {"fp8 (1x128 . 128x128)",
           {.format = Format::fp8, .block = {1, 128}},
           {.format = Format::fp8, .block = {128, 128}}}};
}

}  // namespace

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats, const Report& report) {
  Operands data{m, n, k, random_f32(m * k), random_f32(n * k), {}, {}, {}};
  data.a_bf16 = to_bf16(data.a);
  data.b_bf16 = to_bf16(data.b);
  data.out = Buffer(static_cast<std::size_t>(m * n) * sizeof(float));
  const MutableMatrixView out = mutable_view_of(data.out.as<float>(), m, n);
  const MatrixView a = view_of(data.a_bf16.as<Bf16>(), m, k);
  const MatrixView b = view_of(data.b_bf16.as<Bf16>(), n, k);
  Backend& backend = cpu_backend();
  const double gigaflop = 2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto run = [&](const std::string& name, const std::function<void()>& work) {
    const Pair seconds = measure(repeats, work, [&] { sgemm(data); });
    report({name, "GFLOP/s", gigaflop / seconds.work, gigaflop / seconds.ceiling, "OpenBLAS SGEMM"});
  };

  for (const Recipe& recipe : recipes()) {
    QuantizedTensor qa;
    QuantizedTensor qb;
    run("quantize + gemm, " + recipe.name, [&] {
      backend.quantize(a, recipe.a, {}, qa);
      backend.quantize(b, recipe.b, {}, qb);
      backend.gemm(qa, qb, out);
    });
    run("gemm alone, " + recipe.name, [&] { backend.gemm(qa, qb, out); });
  }
  run("gemm, bf16 . bf16", [&] { backend.gemm(a, b, out); });
}

}  // namespace tetrad::bench
