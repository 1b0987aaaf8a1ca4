// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of a model that ranks share (parallel.zero): each updates a band of every matrix, and what
// products read is made of the bands of all. Weights in few bits travel as codes, which are those of the
// whole matrix; the others in the type that products read. Masters stay where they are.
//
// All ranks of a model make the same calls in the same order.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tetrad/model/parameter.h"
#include "tetrad/model/zero.h"
#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"
#include "tetrad/ops/linear.h"
#include "tetrad/parallel/routes.h"

namespace tetrad {

/// Whether the codes of a band of rows, scaled by the amax of the whole matrix, are those of the whole.
/// (A transform has an amax of its own, which the rows do not say.)
inline bool bands_have_codes_of_whole(const QuantSpec& spec) {
  return !spec.block.is_whole() && spec.hadamard == 0;
}

/// A form of a weight that is there for as long as its block computes; then the memory is another's.
struct PassingForm {
  WeightForm form;
  const void* owner = nullptr;  //!< whose it is
  std::uint64_t gathering = 0;  //!< what to wait for: WeightShards::wait
};
/// So many blocks have theirs at a time: while one computes, those of the next are gathered.
inline constexpr std::size_t kFormTurns = 2;

class WeightShards {
 public:
  WeightShards(Backend& backend, Routes& routes, std::int64_t zero)
      : backend_(backend), routes_(routes), ranks_(routes.ranks()), zero_(zero) {}

  /// A matrix that ranks share: all of them, before the first is used. It outlives its last use.
  void share(Parameter& matrix);

  Communicator& ranks() { return ranks_; }
  /// Whether a rank has whole gradients only while the backward pass is there.
  bool share_gradients() const { return zero_ >= kSharesGradients; }
  /// Whether it has whole forms only then: blocks take turns in passing_form().
  bool share_forms() const { return zero_ >= kSharesForms; }
  PassingForm& passing_form(std::int64_t block, std::size_t place, Operand operand);

  /// Whose rows are whose, by rank.
  std::vector<RowBand> bands(const Parameter& matrix) const;
  RowBand own_band(std::span<const RowBand> pieces) const;

  /// The whole matrix in this type. `whole` is reused where it fits.
  void gather_values(const Parameter& matrix, DType type, Tensor& whole);
  /// The same in f32, until somebody asks for another one.
  MatrixView masters(const Parameter& matrix);

  struct FormCall {
    const LinearCall& call;
    Operand operand;
    const Parameter& matrix;
    DType storage;
    /// The masters travel, for what codes do not say, statistics.
    bool by_values = false;
    /// What is kept of codes that travel, those of the own band; null: nothing. With codes they are current.
    WeightForm* band = nullptr;
  };
  /// linear_weight() of the whole matrix, with packed codes, into `form`: now …
  void make_form(const FormCall& op, WeightForm& form) { wait(start_form(op, form)); }
  /// … or while other operations go on, until wait().
  std::uint64_t start_form(const FormCall& op, WeightForm& form);
  void wait(std::uint64_t gathering) { routes_.wait(gathering); }

 private:
  std::uint64_t start_values(const Parameter& matrix, DType type, Tensor& whole);
  std::uint64_t start_codes(const FormCall& op, const QuantSpec& spec, QuantizedTensor& band,
                            QuantizedTensor& whole);
  void quantize_band(const FormCall& op, const QuantSpec& spec, WeightForm& band);
  bool codes_can_travel(const QuantSpec& spec, const Parameter& matrix) const;
  /// Of the whole matrix. Those of all matrices are found together, once after each update.
  float amax_of(const Parameter& matrix);

  Backend& backend_;
  Routes& routes_;
  Communicator& ranks_;
  std::int64_t zero_;
  std::vector<const Parameter*> matrices_;
  std::map<const Parameter*, float> amaxes_;
  std::uint64_t amax_version_ = 0;  //!< of the matrices of which those are
  WeightForm band_form_;            //!< of the own band, on its way
  /// Of each turn, of two layers, for forward and backward pass.
  std::array<PassingForm, kFormTurns * 2 * 2> passing_;
  Tensor masters_;
  Buffer bits_;
};

}  // namespace tetrad
