// SPDX-License-Identifier: Apache-2.0
#pragma once
// The contract of the matrix product: C[M,N] = A[M,K] . B[N,K]^T, both operands with the reduction dimension
// last.
//
// Operands are BF16 or f32 matrices or quantized ones, in any combination. A quantized operand is decoded to
// code x block scale, which is exact; the tensor scales go into alpha; products accumulate in f32. A may be a
// stack of quantized tensors (QuantizedTensor::stack): each has an alpha of its own, and so the rows that it
// would give alone.

#include <variant>
#include <vector>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/accumulate.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {

/// A second operand in the order in which the products of a backend read it, for one that many products read
/// (Backend::pack).
struct PackedOperand {
  Buffer words;
  int layout = 0;  //!< the backend's own number
};

/// One operand, borrowed.
class GemmOperand {
 public:
  GemmOperand(const MatrixView& dense) : source_(dense) {}  // NOLINT(google-explicit-constructor)
  GemmOperand(const QuantizedTensor& quantized)
      : source_(&quantized) {}  // NOLINT(google-explicit-constructor)

  /// The operand used transposed: for example W in dx = dy . W, after y = x . W^T.
  GemmOperand transposed() const {
    GemmOperand result = *this;
    result.transposed_ = !transposed_;
    result.packed_ = nullptr;
    return result;
  }

  /// The same, of which there is a packed copy too.
  GemmOperand with(const PackedOperand& packed) const {
    GemmOperand result = *this;
    result.packed_ = &packed;
    return result;
  }
  const PackedOperand* packed() const { return packed_; }

  std::int64_t rows() const { return transposed_ ? stored_cols() : stored_rows(); }
  std::int64_t cols() const { return transposed_ ? stored_rows() : stored_cols(); }
  bool is_transposed() const { return transposed_; }
  const MatrixView* dense() const { return std::get_if<MatrixView>(&source_); }
  const QuantizedTensor* quantized() const {
    const auto* pointer = std::get_if<const QuantizedTensor*>(&source_);
    return pointer == nullptr ? nullptr : *pointer;
  }

 private:
  std::int64_t stored_rows() const {
    return std::visit([](const auto& source) { return extent(source).rows; }, source_);
  }
  std::int64_t stored_cols() const {
    return std::visit([](const auto& source) { return extent(source).cols; }, source_);
  }
  static const MatrixView& extent(const MatrixView& view) { return view; }
  static const QuantizedTensor& extent(const QuantizedTensor* tensor) { return *tensor; }

  std::variant<MatrixView, const QuantizedTensor*> source_;
  const PackedOperand* packed_ = nullptr;
  bool transposed_ = false;
};

/// alpha = amax_a * amax_b / (range_a * range_b), in f32.
float gemm_alpha(const GemmOperand& a, const GemmOperand& b);
/// The same for each row of C where A is a stack; empty where it is not.
std::vector<float> gemm_alphas(const GemmOperand& a, const GemmOperand& b);

/// Throws Error where shapes or types do not fit.
void check(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate);

}  // namespace tetrad
