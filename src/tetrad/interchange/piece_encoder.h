// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the parameters of a model become tensors of a file.

#include <memory>
#include <span>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/sharded_writer.h"
#include "tetrad/interchange/tensor_map.h"

namespace tetrad {

class PieceEncoder {
 public:
  PieceEncoder() = default;
  PieceEncoder(const PieceEncoder&) = delete;
  PieceEncoder& operator=(const PieceEncoder&) = delete;
  virtual ~PieceEncoder() = default;

  /// What write() will write.
  virtual std::vector<TensorDeclaration> declare(const MappedParameter& parameter) const = 0;
  virtual void write(const MappedParameter& parameter, std::span<const float> values, ShardedWriter& out) = 0;
};

/// Plain values. Those that steer Mamba-2's state (A_log, D, dt_bias) stay F32 in any case: they are few, and
/// errors in them add up along a sequence.
class DenseEncoder final : public PieceEncoder {
 public:
  DenseEncoder(Threads& threads, DType dtype) : threads_(threads), dtype_(dtype) {}

  std::vector<TensorDeclaration> declare(const MappedParameter& parameter) const override;
  /// Throws Error (bad input) if a value is too large for the element type.
  void write(const MappedParameter& parameter, std::span<const float> values, ShardedWriter& out) override;

 private:
  DType dtype_of(const MappedParameter& parameter) const;

  Threads& threads_;
  DType dtype_;
};

/// The rows of `values` that a piece is made of.
std::span<const float> rows_of(const MappedParameter& parameter, const Piece& piece,
                               std::span<const float> values);

}  // namespace tetrad
