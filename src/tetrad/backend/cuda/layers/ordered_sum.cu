// SPDX-License-Identifier: Apache-2.0
// Reading the parts is all that takes time: each thread adds up its elements in registers.

#include "tetrad/backend/cuda/layers/layers.h"

#include <algorithm>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/layers/tensor_list.cuh"
#include "tetrad/numerics/tree_sum.h"

namespace tetrad::cuda {
namespace {

template <int kWidth>
struct Neighbours {
  float value[kWidth];

  friend __device__ Neighbours operator+(const Neighbours& a, const Neighbours& b) {
    Neighbours sum;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.value[i] = a.value[i] + b.value[i];
    return sum;
  }
};

/// Elements `first` … `first + extent.cols` of every part.
template <typename T, int kWidth, int kLevels>
__global__ void ordered_sum_kernel(const void* const* parts, std::int64_t count, std::int64_t first,
                                   Extent extent, float* out) {
  for_each_group<kWidth>(extent, [&](std::int64_t, std::int64_t col) {
    TreeSum<Neighbours<kWidth>, kLevels> sum;
    for (std::int64_t k = 0; k < count; ++k) {
      Neighbours<kWidth> part;
      load(static_cast<const T*>(parts[k]) + first + col, part.value);
      sum.add(part);
    }
    store(out + first + col, sum.total().value);
  });
}

/// Calls body with the number of levels that `count` parts need: few for the ranks of a node, so that their
/// sums fit into registers.
template <typename Body>
void with_levels(std::size_t count, const Body& body) {
  constexpr int kFewLevels = 4;
  if (count < std::size_t{1} << kFewLevels)
    body(std::integral_constant<int, kFewLevels>{});
  else
    body(std::integral_constant<int, OrderedSum::kLevels>{});
}

}  // namespace

void ordered_sum(Device& device, const OrderedSum& op) {
  check(op);
  if (op.size == 0) return;
  const auto is_aligned = [](const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0;
  };
  const bool wide = is_aligned(op.out) && std::ranges::all_of(op.parts, is_aligned);
  const std::int64_t wide_size = wide ? op.size / kWide * kWide : 0;
  const void* const* parts = upload(device, op.parts);
  const auto count = static_cast<std::int64_t>(op.parts.size());
  with_type(op.dtype, [&]<typename T>(T) {
    with_levels(op.parts.size(), [&](auto levels) {
      const Extent in_groups{1, wide_size};
      launch_groups<kWide>(device, in_groups, ordered_sum_kernel<T, kWide, levels>, parts, count,
                           std::int64_t{0}, in_groups, op.out);
      const Extent rest{1, op.size - wide_size};
      launch_groups<1>(device, rest, ordered_sum_kernel<T, 1, levels>, parts, count, wide_size, rest, op.out);
    });
  });
}

}  // namespace tetrad::cuda
