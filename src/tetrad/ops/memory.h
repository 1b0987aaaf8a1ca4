// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a backend uses memory, so that the needs of a run can be told where that backend is not: how it holds
// quantized matrices, and what its operations hold for themselves.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tetrad/ops/attention.h"
#include "tetrad/ops/mamba2.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {

struct MemoryTraits {
  bool operands_are_values = false;  //!< Form::operand of the four-bit formats is BF16
  /// Whether operations have memory of their own that grows to what was ever needed and stays. If not, the
  /// figures below do not count: the CPU's threads hold little.
  bool holds_scratch = false;
  std::int64_t product_workspace = 0;    //!< bytes, for any product
  std::int64_t logits = 0;               //!< elements that the loss has at one time, about
  std::int64_t attention_workspace = 0;  //!< bytes, at most, where a library computes attention

  /// Tokens whose logits exist at one time. A multiple of 128 keeps the products' tiles whole.
  constexpr std::int64_t loss_chunk(std::int64_t tokens, std::int64_t vocab) const {
    constexpr std::int64_t kUnit = 128;
    return std::min(tokens, std::max<std::int64_t>(1, logits / vocab / kUnit) * kUnit);
  }
};

inline constexpr MemoryTraits kCpuMemory = {};
/// On Hopper, whose matrix units take FP8, and with cuDNN.
inline constexpr MemoryTraits kCudaMemory = {.operands_are_values = true,
                                             .holds_scratch = true,
                                             .product_workspace = std::int64_t{64} << 20,
                                             .logits = std::int64_t{1} << 27,
                                             .attention_workspace = std::int64_t{9} << 29};

/// Whether Hopper's matrix units take an FP8 operand of [rows, depth] as it is. `transposed`: it was
/// quantized the other way round. A block of 1x128 has its elements along the tensor's columns, which must
/// then be the depth.
bool fits_fp8_units(const BlockShape& block, std::int64_t rows, std::int64_t depth, bool transposed);

/// Whether the gradients of attention are computed, where there is cuDNN, with a matrix [sequence, sequence]
/// for every head. For smaller heads our kernels, which need none, are nearly as fast.
constexpr bool keeps_scores(const AttentionShape& shape) {
  constexpr std::int64_t kTile = 128;
  return shape.head_dim == 128 && shape.sequence % kTile == 0;
}

/// By the name of a backend: "cpu" or "cuda".
const MemoryTraits& memory_traits(std::string_view backend);

/// Bytes of a quantized matrix of [rows, cols], as consumed.
std::int64_t quantized_bytes(const MemoryTraits& traits, const QuantSpec& spec, Form form, std::int64_t rows,
                             std::int64_t cols);

/// An operand of a product, [rows, depth] as consumed.
struct OperandShape {
  std::int64_t rows, depth;
  DType dtype;                    //!< if it is not quantized
  std::optional<QuantSpec> spec;  //!< if it is
  Form form = Form::operand;
  bool transposed = false;  //!< it was quantized the other way round
};

/// What a backend's operations hold for themselves, after the operations that it is told.
class OperationMemory {
 public:
  explicit OperationMemory(const MemoryTraits& traits);

  void product(const OperandShape& a, const OperandShape& b, DType out);
  /// Of one matrix of `count` elements; `statistics`: telemetry is measured.
  void quantize(const QuantSpec& spec, std::int64_t count, bool statistics);
  void embedding(std::int64_t tokens, std::int64_t width);
  void attention(const AttentionShape& shape, DType dtype);
  void mamba2(const Mamba2Shape& shape, std::int64_t kernel, DType dtype);
  void cross_entropy(std::int64_t tokens, std::int64_t vocab, DType dtype);

  double bytes() const;

 private:
  enum Slot : std::uint8_t {
    workspace,
    partial_sums,
    operand_a,
    operand_b,
    expanded,
    wide_out,
    attention_rows,
    scan,
    logits,
    tables,
    slots
  };
  void need(Slot slot, double bytes) { bytes_[slot] = std::max(bytes_[slot], bytes); }
  void expand(const OperandShape& operand, Slot slot, bool to_f32);
  void arrange_fp8(const OperandShape& operand, Slot slot);

  MemoryTraits traits_;
  std::array<double, slots> bytes_ = {};
};

}  // namespace tetrad
