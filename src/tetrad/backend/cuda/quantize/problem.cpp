// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/quantize/problem.h"

#include <bit>

#include "tetrad/core/checked.h"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cuda {
namespace {

int shift_of(std::int64_t extent) { return std::countr_zero(static_cast<std::uint64_t>(extent)); }

}  // namespace

QuantProblem make_problem(const MatrixView& consumed, const QuantSpec& spec, const QuantizeOptions& options,
                          QuantizedTensor& out) {
  QuantProblem p;
  p.x = consumed.data;
  p.dtype = consumed.dtype;
  p.rows = consumed.rows;
  p.cols = consumed.cols;
  p.row_stride = consumed.row_stride;
  p.col_stride = consumed.col_stride;
  constexpr std::int64_t kVector = 16;
  const std::int64_t element = p.dtype == DType::bf16 ? sizeof(Bf16) : sizeof(float);
  p.wide = p.is_row_major() && reinterpret_cast<std::uintptr_t>(p.x) % kVector == 0 &&
           p.row_stride * element % kVector == 0;
  p.format = spec.format;
  p.rounding = spec.rounding;
  p.hadamard = spec.hadamard;
  p.signs = spec.signs;
  p.scaling = spec.scaling;
  p.whole = spec.block.is_whole();
  const BlockShape block = p.whole ? BlockShape{1, fp8::kBlock} : spec.block;
  p.block_row_shift = shift_of(block.rows);
  p.block_col_shift = shift_of(block.cols);
  p.block_rows_total = ceil_div(p.rows, block.rows);
  p.block_cols_total = ceil_div(p.cols, block.cols);
  p.random = options.random;
  p.key = options.key;
  std::uint32_t key[2] = {static_cast<std::uint32_t>(p.random.seed),
                          static_cast<std::uint32_t>(p.random.seed >> 32)};
  for (auto& round : p.round_keys) {
    round[0] = key[0];
    round[1] = key[1];
    key[0] += kPhiloxLowStep;
    key[1] += kPhiloxHighStep;
  }
  p.part = options.part;
  if (p.part.total_cols == 0) p.part.total_cols = p.cols;
  p.amax_given = options.amax.has_value();
  p.given_amax = options.amax.value_or(0.0f);
  p.order = out.order;
  p.form = out.form;
  p.codes = out.codes.data();
  p.scales = out.scales.data();
  p.scale_rows = out.scale_rows();
  p.scale_cols = out.scale_cols();
  p.amax = out.device_amax.as<float>();
  return p;
}

}  // namespace tetrad::cuda
