// SPDX-License-Identifier: Apache-2.0
#pragma once
// What follows an encoding that finds the tensor's amax on its way: values that are not finite are known only
// when every code has been written.

#include "tetrad/backend/cuda/quantize/problem.h"

namespace tetrad::cuda {

/// The share of one thread: the tensor's amax, and the result that a tensor which is not finite has.
TETRAD_HD inline void finalize_share(const QuantProblem& p, std::int64_t thread, std::int64_t threads) {
  if (thread == 0) *p.amax = p.tensor_amax();
  if (!p.is_poisoned()) return;
  const std::int64_t elements = p.rows * p.cols;
  const auto fill = [&](auto* out, std::int64_t count, auto value) {
    for (std::int64_t i = thread; i < count; i += threads) out[i] = value;
  };
  if (p.form == Form::operand) {
    fill(static_cast<Bf16*>(p.codes), elements, Bf16{0x7FFF});
    return;
  }
  const bool fp8 = p.format == Format::fp8;
  const std::int64_t scales = p.scale_rows * p.scale_cols;
  fill(static_cast<std::uint8_t*>(p.codes), fp8 ? elements : elements / 2, std::uint8_t{0});
  if (fp8)
    fill(static_cast<float*>(p.scales), scales, Fp8Codec::kPoison);
  else
    fill(static_cast<std::uint8_t*>(p.scales), scales, Mxfp4Codec::kPoison);
}

}  // namespace tetrad::cuda
