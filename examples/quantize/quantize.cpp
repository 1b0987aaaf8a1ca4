// SPDX-License-Identifier: Apache-2.0
// The same in C++, through the backend that the program itself uses: quantizes, decodes, and prints what was
// lost.

#include <tetrad/ops/backend.h>
#include <cstdio>
#include <vector>

int main() {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kCols = 128;
  std::vector<float> values(kRows * kCols);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 201) - 100) / 64.0f;

  const auto backend = tetrad::make_cpu_backend();
  tetrad::QuantizedTensor quantized;
  const tetrad::QuantStats stats = backend->quantize(tetrad::view_of(values.data(), kRows, kCols), {},
                                                     {.telemetry = tetrad::Telemetry::full}, quantized);
  std::vector<float> decoded(values.size());
  backend->dequantize(quantized, tetrad::mutable_view_of(decoded.data(), kRows, kCols));

  std::printf("%s: %zu bytes of codes, SQNR %.1f dB; %g became %g\n",
              tetrad::describe(quantized.spec).c_str(), quantized.codes.size(), stats.sqnr_db(),
              static_cast<double>(values[1]), static_cast<double>(decoded[1]));
  return 0;
}
