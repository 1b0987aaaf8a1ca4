// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a backend uses memory, so that the needs of a run can be predicted where that backend is not available:
// how it holds quantized matrices, and what its operations hold for themselves. Each backend describes itself
// (backend/*/memory.h).

#include <cstdint>
#include <memory>
#include <optional>

#include "tetrad/ops/attention.h"
#include "tetrad/ops/mamba2.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {

/// An operand of a product, [rows, depth] as consumed.
struct OperandShape {
  std::int64_t rows, depth;
  DType dtype;                    //!< if it is not quantized
  std::optional<QuantSpec> spec;  //!< if it is
  Form form = Form::operand;
  bool transposed = false;  //!< it was quantized the other way round
};

/// Adds up what a backend's operations hold for themselves, given the operations of a run. This one holds
/// nothing.
class OperationMemory {
 public:
  OperationMemory() = default;
  OperationMemory(const OperationMemory&) = delete;
  OperationMemory& operator=(const OperationMemory&) = delete;
  virtual ~OperationMemory() = default;

  virtual void product(const OperandShape& /*a*/, const OperandShape& /*b*/, DType /*out*/) {}
  /// One matrix of `count` elements; `statistics`: telemetry is measured.
  virtual void quantize(const QuantSpec& /*spec*/, std::int64_t /*count*/, bool /*statistics*/) {}
  virtual void column_sums(std::int64_t /*rows*/, std::int64_t /*cols*/) {}
  virtual void embedding(std::int64_t /*tokens*/, std::int64_t /*width*/) {}
  /// `by_parts`: as AttentionBackward has it.
  virtual void attention(const AttentionShape& /*shape*/, DType /*dtype*/, bool /*by_parts*/) {}
  virtual void mamba2(const Mamba2Shape& /*shape*/, std::int64_t /*kernel*/, DType /*dtype*/) {}
  virtual void cross_entropy(std::int64_t /*tokens*/, std::int64_t /*vocab*/, DType /*dtype*/) {}
  /// AdamW with moments on the host.
  virtual void moments_on_host() {}

  virtual double bytes() const { return 0; }
};

struct MemoryTraits {
  bool operands_are_values = false;  //!< Form::operand of the four-bit formats is BF16
  std::unique_ptr<OperationMemory> (*operations)() = [] { return std::make_unique<OperationMemory>(); };
  double host_bandwidth = 0;  //!< bytes per second to the host and back, at once; 0: the device is the host
};

/// Bytes of a quantized matrix of [rows, cols], as consumed.
std::int64_t quantized_bytes(const MemoryTraits& traits, const QuantSpec& spec, Form form, std::int64_t rows,
                             std::int64_t cols);

}  // namespace tetrad
