// SPDX-License-Identifier: Apache-2.0
#pragma once
// A linear layer y = x W^T and its gradients, dx = dy W and dW = dy^T x, without any state: what is kept from
// forward to backward, the forms of the weight and all memory belong to the caller.
//
// Memory that a call writes quantized matrices to is a QuantizedTensor whose buffers are reused where they
// are large enough and allocated by the backend where they are not. A caller that holds memory of its own
// (tensors of a framework) puts borrowed buffers of packed_size() bytes in there, and nothing is allocated.

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "tetrad/ops/backend.h"
#include "tetrad/ops/linear_precision.h"

namespace tetrad {

/// Random bits of a call are a function of this, of the operand and of each element's place.
struct LinearKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t microbatch = 0;
  std::uint32_t layer = 0;  //!< distinct for each linear layer of a model
  /// Other random numbers for the operands of dgrad and wgrad, with the same forward pass: for measurements.
  /// Training has 0.
  std::uint32_t draw = 0;

  std::uint64_t seed_of(Operand operand) const {
    return gemm_of(operand) == "fprop" ? seed : seed + (std::uint64_t{draw} << 32);
  }
  RandomStream stream(Operand operand) const {
    return {seed_of(operand), step, microbatch, layer * kOperands + static_cast<std::uint32_t>(operand)};
  }
  /// The key of what all microbatches of a step share: forms of the weight.
  LinearKey of_step() const { return {seed, step, 0, layer, draw}; }
};

/// Where an operand that is part of a larger tensor lies in it, and the amax of the whole. The results are
/// then those rows or columns of what the whole tensor would give.
struct OperandPart {
  PartOfTensor part = {};
  std::optional<float> amax = {};
};
using LinearParts = std::array<OperandPart, kOperands>;  //!< by Operand

/// What the quantizers of a call report, by Operand; nothing: not quantized in this call.
using LinearStats = std::array<std::optional<QuantStats>, kOperands>;

/// Memory for the operands of one call.
struct LinearWorkspace {
  QuantizedTensor first;
  QuantizedTensor second;
  Buffer values;  //!< of W or x as fprop multiplied them, where they are quantized once more; of x centred
  Buffer sums;    //!< of the columns of x or dy, where x is centred
  Buffer row;     //!< what the mean of x adds to y
};

/// What all functions below have in common.
struct LinearCall {
  Backend& backend;
  const LinearPrecision& precision;
  LinearKey key;
  Telemetry telemetry = Telemetry::none;
  const LinearParts* parts = nullptr;  //!< null: every operand is a whole tensor
  LinearStats* stats = nullptr;        //!< added to, unless null
  /// In the backend's memory, as QuantizeOptions::key: where seed, step and microbatch are read from. Signs
  /// and forms of the weight are drawn by `key` all the same.
  const RandomKey* key_in_memory = nullptr;
  /// x is several tensors, one below the other, with so many rows each (QuantizeOptions::stack). Forward
  /// alone, without saving; where precision.can_stack() and the backend has_stacks().
  std::span<const std::int64_t> stack = {};

  /// The spec of an operand with the signs of this call; nothing: it is not quantized.
  std::optional<QuantSpec> spec(Operand operand) const;
};

/// The memory of one form of a weight: codes, or a copy in the storage type.
struct WeightForm {
  QuantizedTensor codes;
  Tensor dense;
};

/// The weight [out, in] as fprop or dgrad (`operand`: fprop_w, dgrad_w) reads it: quantized, or in `storage`,
/// written to `form` unless the weight is in that type already. The result refers to `weight` and `form`. It
/// is valid until the weight changes, or the operand's spec in another call (by fresh signs), or, if
/// weight_depends_on_step(), the step. If precision.weight_form_shared(), dgrad takes fprop's operand
/// transposed and needs no form of its own; if precision.dgrad_requantizes(), `weight` is what
/// linear_weight_values() returns. Packed codes (`codes`) take less memory, and are expanded for each product
/// where it reads values.
GemmOperand linear_weight(const LinearCall& call, Operand operand, const MatrixView& weight, DType storage,
                          WeightForm& form, Form codes = Form::operand);

/// The weight as fprop multiplied it, from the form that linear_weight() made for it: decoded to `storage` in
/// the workspace, until that is used again.
MatrixView linear_weight_values(const LinearCall& call, const WeightForm& fprop, DType storage,
                                LinearWorkspace& workspace);

/// The operand that linear_weight() returned, once more.
GemmOperand weight_operand(Operand operand, const MatrixView& weight, const WeightForm& form);

/// Whether that form of the weight is different in every step, though the weight is the same.
bool weight_depends_on_step(const LinearPrecision& precision, Operand operand);

/// What wgrad reads of x: its codes along the tokens, those that fprop multiplied, to be multiplied by
/// (wgrad_reads_fprop()) or quantized once more (wgrad_requantizes()), or x itself, which must then stay as
/// it is.
struct LinearSaved {
  MatrixView x;
  const QuantizedTensor* codes = nullptr;  //!< of precision.saved_operand(), if that is quantized
  const Buffer* mean = nullptr;            //!< of x, f32, if the codes are those of x without it
};

struct LinearForward {
  MatrixView x;         //!< [tokens, in]
  GemmOperand weight;   //!< fprop's
  MutableMatrixView y;  //!< [tokens, out], written
  LinearWorkspace& workspace;
  QuantizedTensor* saved_codes = nullptr;  //!< where codes for wgrad go; null: nothing is saved
  const AmaxReport* amax = nullptr;        //!< amax of x, if its producer reported it
  /// If precision.centres(): memory for the mean of x, kept with the codes, and the weight [out, in] itself.
  Buffer* mean = nullptr;
  MatrixView weight_values = {};
};
/// y = x W^T. Returns what linear_backward() needs, or nothing.
LinearSaved linear_forward(const LinearCall& call, const LinearForward& op);

struct LinearSave {
  MatrixView x;
  QuantizedTensor& codes;
  LinearWorkspace& workspace;
  const AmaxReport* amax = nullptr;
  Buffer* mean = nullptr;  //!< as in LinearForward
};
/// Saves x as linear_forward() does, without the product.
LinearSaved linear_save(const LinearCall& call, const LinearSave& op);

struct LinearBackward {
  MatrixView dy;      //!< [tokens, out]
  LinearSaved saved;  //!< what the forward pass saved, if dw is wanted
  LinearWorkspace& workspace;
  std::optional<GemmOperand> weight = {};    //!< dgrad's, if dx is wanted
  std::optional<MutableMatrixView> dx = {};  //!< [tokens, in], written
  std::optional<MutableMatrixView> dw = {};  //!< [out, in], f32 if it is added to
  Accumulate accumulate = Accumulate::yes;   //!< dw += or dw =
  const AmaxReport* amax = nullptr;          //!< amax of dy, if its producer reported it
};
/// dx = dy W and dW (+)= dy^T x, those that are wanted.
void linear_backward(const LinearCall& call, const LinearBackward& op);

}  // namespace tetrad
