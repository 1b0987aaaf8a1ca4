// SPDX-License-Identifier: Apache-2.0
#pragma once
// What quantization lost, from what is stored: a fault of whatever made the codes is seen here.

#include "tetrad/core/threads.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

/// Telemetry::sampled takes every so many tiles of a unit of work.
inline constexpr std::int64_t kSampleEvery = 16;

/// Decodes `tensor` beside the input that it was made of, `x` as consumed (blocks along its columns); fills
/// what is about single elements but for `saturated`, which the codes do not tell.
QuantStats measure(Threads& threads, const MatrixView& x, const QuantizedTensor& tensor, Telemetry telemetry);

}  // namespace tetrad::cpu
