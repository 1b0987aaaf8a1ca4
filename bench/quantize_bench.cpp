#include <cstring>

#include "benchmarks.h"
#include "random_data.h"
#include "tetrad/core/buffer.h"
#include "tetrad/core/threads.h"
#include "tetrad/ops/backend.h"

namespace tetrad::bench {
namespace {

struct Case {
  QuantSpec spec;
  CodeOrder order = CodeOrder::row_major;
  Telemetry telemetry = Telemetry::sampled;
};

std::vector<Case> cases() {
  constexpr auto kSr = Rounding::stochastic;
  return {{{.block = {1, 16}}},
          {.spec = {.block = {1, 16}}, .telemetry = Telemetry::full},
          {{.block = {16, 16}}},
          {{.block = {1, 16}, .rounding = kSr}},
          {{.block = {1, 16}, .hadamard = 16}},
          {{.block = {1, 16}, .rounding = kSr, .hadamard = 16}},
          {{.block = {1, 16}, .axis = 0}, CodeOrder::col_major},
          {{.block = {1, 16}, .axis = 0, .rounding = kSr, .hadamard = 16}, CodeOrder::col_major},
          {{.block = {1, 16}, .adaptive = true}},
          {{.format = Format::mxfp4, .block = {1, 32}}},
          {{.format = Format::fp8, .block = {1, 128}}},
          {{.format = Format::fp8, .block = {128, 128}}}};
}

/// The ceiling: as many bytes copied, by as many threads, in pieces.
void parallel_copy(const std::byte* from, std::byte* to, std::int64_t bytes) {
  constexpr std::int64_t kPieces = 64;
  parallel_for(kPieces, [&](std::int64_t i) {
    const std::int64_t begin = bytes * i / kPieces;
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(bytes * (i + 1) / kPieces - begin));
  });
}

}  // namespace

void quantize(std::int64_t rows, std::int64_t cols, DType dtype, int repeats, const Report& report) {
  const Buffer f32 = random_f32(rows * cols);
  const Buffer bf16 = to_bf16(f32);
  const MatrixView x =
      dtype == DType::bf16 ? view_of(bf16.as<Bf16>(), rows, cols) : view_of(f32.as<float>(), rows, cols);
  const std::int64_t bytes = x.size() * bits_of(dtype) / 8;
  Buffer copy(static_cast<std::size_t>(bytes));
  for (const Case& test : cases()) {
    QuantizedTensor out;
    const Pair seconds = measure(
        repeats,
        [&] {
          cpu_backend().quantize(x, test.spec, {.order = test.order, .telemetry = test.telemetry}, out);
        },
        [&] { parallel_copy(static_cast<const std::byte*>(x.data), copy.data(), bytes); });
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    report({describe(test.spec) + (test.order == CodeOrder::col_major ? ", in place" : "") +
                (test.telemetry == Telemetry::full ? ", full telemetry" : ""),
            "GB/s", gigabytes / seconds.work, gigabytes / seconds.ceiling, "memcpy"});
  }
}

}  // namespace tetrad::bench
