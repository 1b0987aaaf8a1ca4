// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear layer y = x W^T and its two gradients, at the precision that the recipe says.

#include <cstdint>
#include <optional>
#include <string>

#include "tetrad/model/parameter.h"
#include "tetrad/model/pass.h"
#include "tetrad/model/recompute.h"
#include "tetrad/model/scratch.h"

namespace tetrad {

class Linear {
 public:
  /// `id` is distinct for each linear layer of a model: random bits depend on it.
  Linear(Backend& backend, Scratch& scratch, Parameter& weight, std::string name, std::int64_t block,
         std::uint32_t id, DType storage, Place place = Place::first, Keep keep = Keep::all);

  /// Where the producer of x may write it: a buffer of this layer if it keeps x as it is for the backward
  /// pass, else one that all layers in this place share.
  MutableMatrixView input(const Pass& pass, std::int64_t tokens);

  /// y [tokens, out] = x [tokens, in] W^T. When training, keeps of x what wgrad needs: its codes, or, where
  /// wgrad is not quantized, the view itself, which must then stay as it is until backward(), or be restored.
  /// `amax`: what the producer of x has told of it.
  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const AmaxReport* amax = nullptr);

  /// Whether x, or its codes, are gone, so that backward() needs x again.
  bool wants_input(const Pass& pass) const;
  void restore(Pass& pass, const MatrixView& x, const AmaxReport* amax = nullptr);

  /// dx = dy W (written, unless `dx` is null); dW += dy^T x.
  void backward(Pass& pass, const MatrixView& dy, const MutableMatrixView* dx,
                const AmaxReport* amax = nullptr);

  /// Whether it saves a quantizer a look at x, or at dy, to be told its amax.
  bool wants_amax_of_x(const Pass& pass) const;
  bool wants_amax_of_dy(const Pass& pass) const;

  /// Whether each row of y depends on its row of x alone: not where a scale spans rows or random bits go by
  /// the row.
  bool rows_are_independent(const Pass& pass) const;

  const std::string& name() const { return name_; }
  LayerId layer_id() const { return {name_, block_}; }
  std::int64_t in_features() const { return weight_.value.cols(); }
  std::int64_t out_features() const { return weight_.value.rows(); }
  /// Bytes that this layer holds between forward and backward.
  std::size_t saved_bytes() const;

 private:
  /// A form of the weight that is made once per optimizer step.
  struct WeightForm {
    std::uint64_t version = 0;  //!< of the parameter; 0 = never made
    std::uint32_t step = 0;     //!< per-step signs and stochastic rounding change with it
    std::optional<QuantSpec> spec;
    QuantizedTensor quantized;
    Tensor dense;
  };

  LinearPrecision precision(const Pass& pass) const;
  GemmOperand weight_operand(Pass& pass, const LinearPrecision& precision, Operand operand, WeightForm& form);
  GemmOperand dgrad_weight(Pass& pass, const LinearPrecision& precision);
  /// A form of a matrix, if its spec says anything.
  struct Wanted {
    const std::optional<QuantSpec>* spec;
    Operand operand;
    Form form;
    QuantizedTensor& out;
    const AmaxReport* amax = nullptr;  //!< of the matrix
  };

  QuantizeOptions options(const Pass& pass, const Wanted& wanted) const;
  void take_note(Pass& pass, Operand operand, const QuantStats& stats) const;
  void quantize(Pass& pass, const MatrixView& x, const Wanted& wanted);
  void quantize(Pass& pass, const MatrixView& x, const Wanted& first, const Wanted& second);
  QuantizedTensor& packed_input() {
    return keep_ == Keep::nothing ? scratch_.packed_input(place_) : packed_x_;
  }

  Backend& backend_;
  Scratch& scratch_;
  Parameter& weight_;
  std::string name_;
  std::int64_t block_;
  std::uint32_t id_;
  DType storage_;
  Place place_;
  Keep keep_;

  WeightForm fprop_weight_;
  WeightForm dgrad_weight_;
  Tensor input_;              //!< own buffer for x, if wgrad is not quantized and x is kept
  MatrixView saved_x_;        //!< x as it is, or …
  QuantizedTensor packed_x_;  //!< … its codes along the tokens, if they are kept
};

}  // namespace tetrad
