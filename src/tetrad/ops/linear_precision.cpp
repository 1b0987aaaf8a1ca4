// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/linear_precision.h"

#include <fmt/format.h>

namespace tetrad {
namespace {

/// Whether the whole tensor's amax must be known before the first element is quantized.
bool needs_amax(const std::optional<QuantSpec>& spec) { return spec && spec->format == Format::nvfp4; }

}  // namespace

std::string_view name_of(Operand operand) { return kOperandNames[static_cast<std::size_t>(operand)]; }

std::string_view name_of(Source source) { return source == Source::fprop ? "fprop" : "input"; }

std::string_view gemm_of(Operand operand) { return name_of(operand).substr(0, 5); }

int axis_of(Operand operand) { return operand == Operand::dgrad_w || gemm_of(operand) == "wgrad" ? 0 : 1; }

bool LinearPrecision::weight_codes_shared() const {
  const auto& forward = (*this)[Operand::fprop_w];
  const auto& backward = (*this)[Operand::dgrad_w];
  return forward && backward && forward->block.rows == forward->block.cols && forward->hadamard == 0 &&
         backward->hadamard == 0 && forward->format == backward->format &&
         forward->block == backward->block && forward->rounding == backward->rounding &&
         forward->scaling == backward->scaling;
}

bool LinearPrecision::weight_form_shared() const {
  return weight_codes_shared() || dgrad_reads_fprop() ||
         (!(*this)[Operand::fprop_w] && !(*this)[Operand::dgrad_w]);
}

bool LinearPrecision::uses_amax_of_x(bool saves_input) const {
  if (centres()) return false;  // it is another matrix that is quantized
  return needs_amax((*this)[Operand::fprop_x]) || (saves_input && needs_amax(saved_spec()));
}

bool LinearPrecision::uses_amax_of_dy() const {
  return needs_amax((*this)[Operand::dgrad_dy]) || needs_amax((*this)[Operand::wgrad_dy]);
}

bool LinearPrecision::rows_are_independent() const {
  const std::optional<QuantSpec>& spec = (*this)[Operand::fprop_x];
  return !spec || (spec->format != Format::nvfp4 && tetrad::can_stack(*spec) &&
                   spec->rounding == Rounding::nearest && !centre);
}

bool LinearPrecision::can_stack() const {
  const std::optional<QuantSpec>& spec = (*this)[Operand::fprop_x];
  return !spec || (tetrad::can_stack(*spec) && !centre);
}

std::string describe(const LinearPrecision& precision, std::string_view storage) {
  std::string text;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const auto& spec = precision[operand];
    if (i % 2 == 0)
      text += fmt::format("{}{} ", i == 0 ? "" : " | ", gemm_of(operand));
    else
      text += " · ";
    const bool is_fprops =
        (operand == Operand::dgrad_w && (precision.dgrad_reads_fprop() || precision.dgrad_requantizes())) ||
        (operand == Operand::wgrad_x && (precision.wgrad_reads_fprop() || precision.wgrad_requantizes()));
    text += fmt::format("{} {}", name_of(operand).substr(6), is_fprops ? "of fprop" : "");
    if (spec) text += (is_fprops ? ", " : "") + describe(*spec);
    const bool is_x = operand == Operand::fprop_x || operand == Operand::wgrad_x;
    if (spec && is_x && !is_fprops && precision.centre) text += ", centred";
    if (!spec && !is_fprops) text += storage;
    if (i % 2 == 1 && spec && spec->hadamard > 0 && precision.signs != SignSource::spec)
      text += precision.signs == SignSource::fresh ? ", fresh signs" : ", signs per step";
  }
  return text;
}

}  // namespace tetrad
