// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a linear layer: its weight in the forms that products read, and what it keeps of its input
// from forward to backward. What it computes is ops/linear.h.

#include <cstdint>
#include <optional>
#include <string>

#include "tetrad/model/parameter.h"
#include "tetrad/model/pass.h"
#include "tetrad/model/recompute.h"
#include "tetrad/model/scratch.h"
#include "tetrad/ops/linear.h"

namespace tetrad {

struct PassingForm;

class Linear {
 public:
  /// `id` is distinct for each linear layer of a model: random bits depend on it. `weight_form` is how a
  /// quantized weight waits for its products, `packs_weight` whether it is packed for them as well.
  Linear(Backend& backend, Scratch& scratch, Parameter& weight, std::string name, std::int64_t block,
         std::uint32_t id, DType storage, Place place = Place::first, Keep keep = Keep::all,
         Form weight_form = Form::operand, bool packs_weight = false);
  Linear(const Linear&) = delete;  // what it saved refers to its own memory
  Linear& operator=(const Linear&) = delete;
  ~Linear() = default;

  /// Where the producer of x may write it: a buffer of this layer if it keeps x as it is for the backward
  /// pass, else one that all layers in this place share.
  MutableMatrixView input(const Pass& pass, std::int64_t tokens);

  /// y [tokens, out] = x [tokens, in] W^T. When training, keeps of x what wgrad needs: its codes, or, where
  /// wgrad is not quantized, the view itself, which must then stay as it is until backward(), or be restored.
  /// `amax`: of x, if its producer reported it.
  void forward(Pass& pass, const MatrixView& x, const MutableMatrixView& y, const AmaxReport* amax = nullptr);

  /// Whether x, or its codes, are gone, so that backward() needs x again.
  bool wants_input(const Pass& pass) const;
  void restore(Pass& pass, const MatrixView& x, const AmaxReport* amax = nullptr);

  /// dx = dy W (written, unless `dx` is null); dW += dy^T x.
  void backward(Pass& pass, const MatrixView& dy, const MutableMatrixView* dx,
                const AmaxReport* amax = nullptr);

  /// Where ranks share forms of the weight: begins to gather those that forward() will read, or backward(),
  /// with what may have to be computed again before it.
  void fetch(const Pass& pass, bool backward);

  /// What the recipe says for this layer now.
  const LinearPrecision& precision(const Pass& pass) const {
    return pass.recipe->at(layer_id(), pass.progress);
  }

  const std::string& name() const { return name_; }
  LayerId layer_id() const { return {name_, block_, out_features()}; }
  std::int64_t in_features() const { return weight_.cols(); }
  std::int64_t out_features() const { return weight_.rows(); }
  /// Bytes that this layer holds between forward and backward.
  std::size_t saved_bytes() const;

 private:
  /// A form of the weight that is made once per optimizer step. Where ranks share forms, the own band of it.
  struct CachedWeight {
    std::uint64_t version = 0;  //!< the parameter's; 0 = never made
    std::uint32_t step = 0;     //!< for forms that depend on it, with the seed
    std::uint64_t seed = 0;
    std::optional<QuantSpec> spec;
    WeightForm form;
    PackedOperand packed;
    bool is_packed = false;
  };

  LinearCall make_call(const Pass& pass, const LinearPrecision& precision, LinearStats& stats) const;
  /// All rows of the masters.
  MatrixView weight_values();
  /// `statistics_wanted`: by some rank, if several share the weight.
  GemmOperand weight_operand(const LinearCall& call, Operand operand, CachedWeight& cached,
                             bool statistics_wanted);
  /// The form for weight_operand(), which may be on its way.
  WeightForm& start_form(const LinearCall& call, Operand operand, CachedWeight& cached,
                         bool statistics_wanted);
  bool is_current(const LinearCall& call, Operand operand, const CachedWeight& cached) const;
  /// Where ranks share forms; else null.
  PassingForm* passing_form(Operand operand) const;
  GemmOperand dgrad_weight(const LinearCall& call, bool statistics_wanted);
  /// Passes on what quantizers reported, in this order.
  void take_note(Pass& pass, const LinearStats& stats, std::initializer_list<Operand> order) const;
  QuantizedTensor& packed_input() {
    return keep_ == Keep::nothing ? scratch_.packed_input(place_) : packed_x_;
  }
  Buffer& mean() { return keep_ == Keep::nothing ? scratch_.mean(place_) : mean_; }

  Backend& backend_;
  Scratch& scratch_;
  Parameter& weight_;
  std::string name_;
  std::int64_t block_;
  std::uint32_t id_;
  DType storage_;
  Place place_;
  Keep keep_;
  Form weight_form_;
  bool packs_weight_;

  CachedWeight fprop_weight_;
  CachedWeight dgrad_weight_;
  Tensor input_;              //!< own buffer for x, if wgrad is not quantized and x is kept
  QuantizedTensor packed_x_;  //!< the codes of x, if they are kept
  Buffer mean_;               //!< of x, if it is quantized without and its codes are kept
  LinearSaved saved_;         //!< what backward() reads of x
};

}  // namespace tetrad
