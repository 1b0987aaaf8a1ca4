// SPDX-License-Identifier: Apache-2.0
#pragma once
// How each operand of the three products of a linear layer is quantized.
//
// A linear layer y = x W^T is three products: fprop y = x W^T, dgrad dx = dy W, wgrad dW = dy^T x. Each has
// two operands, and each operand is described as its product consumes it (the reduction dimension last).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tetrad/ops/quantize.h"

namespace tetrad {

enum class Operand : std::uint8_t { fprop_x, fprop_w, dgrad_dy, dgrad_w, wgrad_dy, wgrad_x };
inline constexpr int kOperands = 6;

/// "fprop.x", …: as configurations and metrics spell them.
inline constexpr std::array<std::string_view, kOperands> kOperandNames = {"fprop.x", "fprop.w",  "dgrad.dy",
                                                                          "dgrad.w", "wgrad.dy", "wgrad.x"};
std::string_view name_of(Operand operand);
/// The product that it belongs to: "fprop", "dgrad" or "wgrad".
std::string_view gemm_of(Operand operand);
/// The axis of QuantSpec. The matrix lies [tokens, features] or [out, in]; dgrad's weight and both of wgrad's
/// operands are consumed along their first dimension.
int axis_of(Operand operand);

/// What W is to dgrad, and x to wgrad.
enum class Source : std::uint8_t {
  input,  //!< themselves
  fprop,  //!< what fprop multiplied: Q(W) and Q(x), as a straight-through estimator does
};
std::string_view name_of(Source source);

/// Where the signs of Hadamard transforms come from.
enum class SignSource : std::uint8_t {
  spec,      //!< the operands' specs
  per_step,  //!< sixteen, repeated, drawn from the run's seed and the step
  fresh,     //!< 128, drawn for each product of each layer in each microbatch
};

/// What one linear layer does at one point of a run.
struct LinearPrecision {
  /// By Operand; nothing: the storage type, unquantized.
  std::array<std::optional<QuantSpec>, kOperands> operands;
  SignSource signs = SignSource::spec;
  bool centre = false;  //!< x is quantized without its mean over the tokens, which is multiplied as it is
  Source weight_source = Source::input;  //!< of dgrad_w
  Source input_source = Source::input;   //!< of wgrad_x

  const std::optional<QuantSpec>& operator[](Operand operand) const {
    return operands[static_cast<std::size_t>(operand)];
  }
  std::optional<QuantSpec>& operator[](Operand operand) {
    return operands[static_cast<std::size_t>(operand)];
  }

  /// Dgrad can use fprop's weight codes transposed: square blocks, nothing else different.
  bool weight_codes_shared() const;
  /// Dgrad multiplies by fprop's codes of the weight, wgrad by those of x, though their blocks run the other
  /// way.
  bool dgrad_reads_fprop() const { return weight_is_fprops() && !(*this)[Operand::dgrad_w]; }
  bool wgrad_reads_fprop() const { return input_is_fprops() && !(*this)[Operand::wgrad_x]; }
  /// They decode those, and quantize the values as the operand says.
  bool dgrad_requantizes() const {
    return weight_is_fprops() && (*this)[Operand::dgrad_w] && !weight_codes_shared();
  }
  bool wgrad_requantizes() const { return input_is_fprops() && (*this)[Operand::wgrad_x]; }
  /// Whether an operand made of x is centred.
  bool centres() const { return centre && ((*this)[Operand::fprop_x] || (*this)[Operand::wgrad_x]); }
  /// The operand whose codes the forward pass keeps for wgrad, and how it is quantized; nothing: x is kept.
  Operand saved_operand() const { return input_is_fprops() ? Operand::fprop_x : Operand::wgrad_x; }
  const std::optional<QuantSpec>& saved_spec() const { return (*this)[saved_operand()]; }
  /// Dgrad reads fprop's form of the weight transposed: its codes, or the same unquantized matrix.
  bool weight_form_shared() const;

  /// Whether a report of the amax of x, or of dy, saves a quantizer a pass over it.
  bool uses_amax_of_x(bool saves_input) const;
  bool uses_amax_of_dy() const;

  /// Whether each row of y depends on its row of x alone: not where a scale or a mean spans rows, or random
  /// bits depend on the row.
  bool rows_are_independent() const;
  /// Whether x may be several tensors, each with the rows of y that it would have alone (LinearCall::stack).
  bool can_stack() const;

 private:
  bool weight_is_fprops() const { return weight_source == Source::fprop && (*this)[Operand::fprop_w]; }
  bool input_is_fprops() const { return input_source == Source::fprop && (*this)[Operand::fprop_x]; }
};

/// One line for people: "fprop x nvfp4 1x16 · w nvfp4 16x16 | …".
std::string describe(const LinearPrecision& precision, std::string_view storage);

}  // namespace tetrad
