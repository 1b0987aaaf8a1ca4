// SPDX-License-Identifier: Apache-2.0
#pragma once
// The products of a linear layer spelled out: each operand quantized with its spec and decoded, all sums in
// double precision.

#include <algorithm>
#include <numeric>

#include "support/matrices.h"
#include "tetrad/ops/linear.h"

namespace tetrad::testing {

inline Values transposed(const Values& x, std::int64_t rows, std::int64_t cols) {
  Values result(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      result[static_cast<std::size_t>(c * rows + r)] = x[static_cast<std::size_t>(r * cols + c)];
  return result;
}

/// a [m, k] . b [n, k]^T
inline Values product(const Values& a, const Values& b, std::int64_t k) {
  const auto depth = static_cast<std::size_t>(k);
  Values result;
  for (std::size_t i = 0; i < a.size(); i += depth)
    for (std::size_t j = 0; j < b.size(); j += depth)
      result.push_back(std::inner_product(a.begin() + static_cast<std::ptrdiff_t>(i),
                                          a.begin() + static_cast<std::ptrdiff_t>(i + depth),
                                          b.begin() + static_cast<std::ptrdiff_t>(j), 0.0));
  return result;
}

/// What a product of two FP8 operands may be off by, of its largest element: matrix units may add the
/// products of a block with fewer bits than f32 has. A block that is left out, or has another's scale, shows
/// far beyond.
inline constexpr double kNarrowSum = 0x1p-9;

/// Whether matrix units may take this product as it is.
inline bool may_sum_narrowly(const Backend& backend, const LinearPrecision& precision, Operand a, Operand b) {
  const auto is_fp8 = [&](Operand operand) {
    return precision[operand] && precision[operand]->format == Format::fp8;
  };
  return backend.name() != "cpu" && is_fp8(a) && is_fp8(b);
}

/// The values that a product gets for an operand, [rows, K] as consumed.
struct OperandValues {
  Backend& device;
  LinearPrecision precision;
  LinearKey key;

  /// Of an activation or a gradient.
  Values of(Operand operand, const TestMatrix& x) const {
    if (operand == Operand::wgrad_x && precision.wgrad_reads_fprop())
      return transposed(of(Operand::fprop_x, x), x.view().rows, x.view().cols);
    const bool along_tokens = operand == Operand::wgrad_dy || operand == Operand::wgrad_x;
    if (operand == Operand::wgrad_x && precision.wgrad_requantizes()) {
      const TestMatrix decoded({x.view().dtype}, x.view().rows, x.view().cols, of(Operand::fprop_x, x));
      return quantized(operand, *precision[operand], decoded.view(), key.microbatch);
    }
    if (precision[operand]) return quantized(operand, *precision[operand], x.view(), key.microbatch);
    return along_tokens ? transposed(x.values(), x.view().rows, x.view().cols) : x.values();
  }

  /// Of an f32 weight, [out, in] for fprop and [in, out] for dgrad.
  Values of_weight(Operand operand, const MatrixView& weight, DType storage) const {
    if (operand == Operand::dgrad_w && (precision.weight_codes_shared() || precision.dgrad_reads_fprop()))
      return transposed(of_weight(Operand::fprop_w, weight, storage), weight.rows, weight.cols);
    const bool is_fresh =
        precision.signs == SignSource::fresh && precision[operand] && precision[operand]->hadamard > 0;
    const std::uint32_t microbatch = is_fresh ? key.microbatch : 0;
    if (operand == Operand::dgrad_w && precision.dgrad_requantizes()) {
      const TestMatrix decoded({storage}, weight.rows, weight.cols,
                               of_weight(Operand::fprop_w, weight, storage));
      return quantized(operand, *precision[operand], decoded.view(), microbatch);
    }
    if (precision[operand]) return quantized(operand, *precision[operand], weight, microbatch);
    const auto* data = static_cast<const float*>(weight.data);
    Values values;
    for (std::int64_t i = 0; i < weight.size(); ++i)
      values.push_back(static_cast<double>(storage == DType::bf16 ? round_to_bf16(data[i]) : data[i]));
    return operand == Operand::dgrad_w ? transposed(values, weight.rows, weight.cols) : values;
  }

 private:
  Values quantized(Operand operand, QuantSpec spec, const MatrixView& x, std::uint32_t microbatch) const {
    if (precision.signs == SignSource::per_step)
      spec.signs = repeated_signs(RandomStream{key.seed, key.step, 0, 0xFFFFFFFFu}.group(0)[0] & 0xFFFFu);
    if (precision.signs == SignSource::fresh && spec.hadamard > 0) {
      const std::uint32_t product = key.layer * 3 + (gemm_of(operand) == "dgrad" ? 1 : 2);
      const RandomStream stream{key.seed, key.step, key.microbatch, 0xFFFFFFFFu};
      for (std::size_t i = 0; i < 4; ++i) spec.signs.word[i] = stream.group(product)[i];
    }
    QuantizeOptions options;
    options.random = {key.seed, key.step, microbatch,
                      key.layer * kOperands + static_cast<std::uint32_t>(operand)};
    QuantizedTensor tensor;
    device.quantize(x, spec, options, tensor);
    std::vector<float> decoded(static_cast<std::size_t>(tensor.rows * tensor.cols));
    device.dequantize(tensor, mutable_view_of(decoded.data(), tensor.rows, tensor.cols));
    return to_f64(decoded);
  }
};

}  // namespace tetrad::testing
