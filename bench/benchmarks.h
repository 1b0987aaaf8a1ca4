#pragma once
// What `tetrad bench` measures.

#include <cstdint>
#include <functional>
#include <vector>

#include "measure.h"
#include "tetrad/core/dtype.h"
#include "tetrad/model/config.h"

namespace tetrad::bench {

/// Called with each figure as soon as it is known: benchmarks take a while.
using Report = std::function<void(const Figure&)>;

/// Quantizers over a [rows, cols] tensor: bytes read per second, beside memcpy of the same tensor.
void quantize(std::int64_t rows, std::int64_t cols, DType dtype, int repeats, const Report& report);

/// Products of [m, k] and [n, k]: FLOP/s, quantization included or not, beside OpenBLAS SGEMM.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, int repeats, const Report& report);

/// Whole optimizer steps of a model: BF16 beside its FLOP at SGEMM speed, every other recipe beside BF16.
void step(const ModelConfig& model, std::int64_t batch, std::int64_t sequence, int repeats,
          const Report& report);

}  // namespace tetrad::bench
