// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of activations: f32 or BF16 in memory, f32 in arithmetic. Eight neighbours are one access where
// the view's address and strides allow it.

#include <cstdint>
#include <type_traits>

#include "tetrad/core/matrix.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad::cuda {

/// A row-major matrix as kernels take it.
template <typename T>
struct View {
  T* data;
  std::int64_t stride;  //!< between rows, in elements
  __host__ __device__ T* row(std::int64_t index) const { return data + index * stride; }
};

template <typename T>
View<const T> view_as(const MatrixView& view) {
  return {static_cast<const T*>(view.data), view.row_stride};
}
template <typename T>
View<T> view_as(const MutableMatrixView& view) {
  return {static_cast<T*>(view.data), view.row_stride};
}

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(Bf16 x) { return x.to_f32(); }
__device__ inline void assign(float& out, float x) { out = x; }
__device__ inline void assign(Bf16& out, float x) { out = Bf16::from_f32(x); }

/// kWidth neighbours; 1 where nothing is known about alignment.
template <typename T, int kWidth>
__device__ inline void load(const T* from, float (&out)[kWidth]) {
  if constexpr (kWidth == 1) {
    out[0] = to_f32(*from);
  } else {
    struct alignas(sizeof(T) * kWidth > 16 ? 16 : sizeof(T) * kWidth) Pack {
      T element[kWidth];
    };
    const Pack pack = *reinterpret_cast<const Pack*>(from);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out[i] = to_f32(pack.element[i]);
  }
}
template <typename T, int kWidth>
__device__ inline void store(T* to, const float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    assign(*to, values[0]);
  } else {
    struct alignas(sizeof(T) * kWidth > 16 ? 16 : sizeof(T) * kWidth) Pack {
      T element[kWidth];
    };
    Pack pack;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) assign(pack.element[i], values[i]);
    *reinterpret_cast<Pack*>(to) = pack;
  }
}

inline constexpr int kWide = 8;

/// Whether rows of the view can be read kWide elements at a time.
template <typename ViewType>
bool is_wide(const ViewType& view) {
  const auto element = static_cast<std::uintptr_t>(bits_of(view.dtype) / 8);
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         view.row_stride * static_cast<std::int64_t>(element) % 16 == 0 && view.cols % kWide == 0;
}
inline bool is_wide(const float* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

/// Calls body with a value of the element type: BF16 or, as check_rows() has seen to, f32.
template <typename Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::bf16)
    body(Bf16{});
  else
    body(float{});
}

/// Calls body with std::integral_constant<int, kWide> or <int, 1>.
template <typename Body>
void with_width(bool wide, const Body& body) {
  if (wide)
    body(std::integral_constant<int, kWide>{});
  else
    body(std::integral_constant<int, 1>{});
}

}  // namespace tetrad::cuda
