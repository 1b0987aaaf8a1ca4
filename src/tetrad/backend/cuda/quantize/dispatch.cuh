// SPDX-License-Identifier: Apache-2.0
#pragma once
// From what a problem says at run time to what its kernels are compiled for.

#include <cstdint>
#include <type_traits>

#include "tetrad/backend/cuda/quantize/nvfp4_block.cuh"

namespace tetrad::cuda {

inline Transform transform_of(const QuantProblem& problem) {
  if (problem.hadamard == 0) return Transform::none;
  return problem.signs == kNoSigns ? Transform::hadamard16_unsigned : Transform::hadamard16;
}

/// What the kernels of nvfp4_block.cuh can do, whatever the layout.
inline bool suits_blocks_in_registers(const QuantProblem& p) {
  const bool transform =
      p.hadamard == 0 || (p.hadamard == 16 && (p.signs == kFixedSigns || p.signs == kNoSigns));
  return p.format == Format::nvfp4 && p.dtype == DType::bf16 && p.block_row_shift == 0 && transform &&
         p.scaling != Scaling::eden;
}

/// What those of nvfp4_eden.cuh can.
inline bool suits_rotation_in_registers(const QuantProblem& p) {
  return p.format == Format::nvfp4 && p.dtype == DType::bf16 && p.scaling == Scaling::eden &&
         p.hadamard == kMaxHadamard;
}

/// Whether vectors of `bytes` can be read from lines of `x` that are `stride` elements of `element` bytes
/// apart.
inline bool is_aligned(const void* x, std::int64_t stride, std::int64_t element, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(x) % static_cast<std::uintptr_t>(bytes) == 0 &&
         stride * element % bytes == 0;
}

/// Kernels count items in 32 bits, for division is slow, with room for the last step of a grid.
inline bool has_few_items(std::int64_t items) { return items < std::int64_t{1} << 31; }

template <Transform kTransform>
using TransformConstant = std::integral_constant<Transform, kTransform>;

/// Calls body(transform) with a constant.
template <typename Body>
void with_transform(const QuantProblem& problem, const Body& body) {
  switch (transform_of(problem)) {
    case Transform::none:
      return body(TransformConstant<Transform::none>{});
    case Transform::hadamard16:
      return body(TransformConstant<Transform::hadamard16>{});
    case Transform::hadamard16_unsigned:
      return body(TransformConstant<Transform::hadamard16_unsigned>{});
  }
}

/// Calls body(value) with a constant.
template <typename Body>
void with_bool(bool value, const Body& body) {
  if (value)
    body(std::true_type{});
  else
    body(std::false_type{});
}

/// Calls body(transform, stochastic, operand, choice) with constants.
template <typename Body>
void with_encoding(const QuantProblem& problem, const Body& body) {
  with_transform(problem, [&](auto transform) {
    with_bool(problem.is_stochastic(), [&](auto stochastic) {
      with_bool(problem.form == Form::operand, [&](auto operand) {
        with_bool(is_choice(problem.scaling),
                  [&](auto choice) { body(transform, stochastic, operand, choice); });
      });
    });
  });
}

}  // namespace tetrad::cuda
