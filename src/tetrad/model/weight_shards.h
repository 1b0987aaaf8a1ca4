// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of a model that ranks share (parallel.zero): each updates a band of every matrix, and what
// products read is made of the bands of all. Weights in few bits travel as codes, which are those of the
// whole matrix; the others in the type that products read. Masters stay where they are.
//
// All ranks of a model make the same calls in the same order.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tetrad/model/parameter.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/ops/linear.h"
#include "tetrad/parallel/routes.h"

namespace tetrad {

/// From which parallel.zero on ranks share gradients too, and what products read.
inline constexpr std::int64_t kSharesGradients = 2;
inline constexpr std::int64_t kSharesForms = 3;

class WeightShards {
 public:
  WeightShards(Backend& backend, Routes& routes, std::int64_t zero)
      : backend_(backend), routes_(routes), ranks_(routes.ranks()), zero_(zero) {}

  Communicator& ranks() { return ranks_; }
  /// Whether a rank has whole gradients only while the backward pass is there.
  bool share_gradients() const { return zero_ >= kSharesGradients; }
  /// Whose rows are whose, by rank.
  std::vector<RowBand> bands(const Parameter& matrix) const;
  RowBand own_band(std::span<const RowBand> pieces) const;

  /// The whole matrix in this type. `whole` is reused where it fits.
  void gather_values(const Parameter& matrix, DType type, Tensor& whole);
  /// The same in f32, until somebody asks for another one.
  MatrixView masters(const Parameter& matrix);

  /// linear_weight() of the whole matrix, with packed codes. `by_values`: the masters travel, for what codes
  /// do not say, statistics.
  void make_form(const LinearCall& call, Operand operand, const Parameter& matrix, DType storage,
                 bool by_values, WeightForm& form);

  /// The rows of all ranks, each with its own in the backend's memory, to the program's memory of rank 0.
  void collect(const Parameter& matrix, const Tensor& own, std::span<std::byte> whole);

 private:
  bool codes_can_travel(const QuantSpec& spec, const Parameter& matrix) const;
  /// Of all ranks', on every rank.
  float largest(float magnitude);

  Backend& backend_;
  Routes& routes_;
  Communicator& ranks_;
  std::int64_t zero_;
  WeightForm band_form_;  //!< of the own band, on its way
  Tensor masters_;
  Buffer magnitude_;
  Buffer staging_;
};

}  // namespace tetrad
