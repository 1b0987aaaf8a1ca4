// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations are written once for activations of either storage type; arithmetic is f32.

#include <algorithm>
#include <cstdint>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/matrix.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {

inline float load(float x) { return x; }
inline float load(Bf16 x) { return x.to_f32(); }
inline void store(float& out, float x) { out = x; }
inline void store(Bf16& out, float x) { out = Bf16::from_f32(x); }

/// Calls body(T{}) with T the element type of the activations.
template <typename Body>
void with_element(DType dtype, const char* op, const Body& body) {
  TETRAD_CHECK(dtype == DType::f32 || dtype == DType::bf16, "{}: activations must be F32 or BF16, not {}", op,
               name_of(dtype));
  if (dtype == DType::f32)
    body(float{});
  else
    body(Bf16{});
}

template <typename T>
const T* row_of(const MatrixView& view, std::int64_t row) {
  return static_cast<const T*>(view.data) + row * view.row_stride;
}
template <typename T>
T* row_of(const MutableMatrixView& view, std::int64_t row) {
  return static_cast<T*>(view.data) + row * view.row_stride;
}

/// body(first, last) for pieces of [0, count), in parallel; the cut depends on the shape alone.
template <typename Body>
void parallel_ranges(Threads& threads, std::int64_t count, std::int64_t piece, const Body& body) {
  threads.parallel_for(ceil_div(count, piece),
                       [&](std::int64_t i) { body(i * piece, std::min(count, (i + 1) * piece)); });
}

/// Rows per piece of work, so that a piece is worth a thread's attention.
inline std::int64_t rows_per_piece(std::int64_t width) {
  constexpr std::int64_t kElements = 1 << 14;
  return std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, width));
}

}  // namespace tetrad::cpu
