// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/layers/layers.h"

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

/// `extent` is [tokens, pairs of a token]: pair p is element p % half of head p / half and the one `half`
/// after it.
template <typename T, int kWidth>
__global__ void rope_kernel(View<T> x, Extent extent, std::int64_t sequence, std::int64_t half,
                            std::int64_t first_position, const float* frequencies, float direction,
                            const std::int32_t* document_starts) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t pair) {
    const std::int64_t at = pair % half;
    T* left = x.row(row) + pair / half * (2 * half) + at;
    const std::int64_t start = document_starts == nullptr ? 0 : document_starts[row];
    const auto position = static_cast<float>(first_position + row % sequence - start);
    float l[kWidth];
    float r[kWidth];
    load(left, l);
    load(left + half, r);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float sine;
      float cosine;
      sincosf(position * frequencies[at + i], &sine, &cosine);
      sine *= direction;
      const float rotated = l[i] * cosine - r[i] * sine;
      r[i] = r[i] * cosine + l[i] * sine;
      l[i] = rotated;
    }
    store(left, l);
    store(left + half, r);
  });
}

}  // namespace

void rope(Device& device, const Rope& op) {
  check(op);
  const std::int64_t half = op.head_dim / 2;
  const Extent extent{op.x.rows, op.x.cols / 2};
  with_type(op.x.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.x) && half % kWide == 0, [&](auto width) {
      launch_groups<width>(device, extent, rope_kernel<T, width>, view_as<T>(op.x), extent, op.sequence, half,
                           op.first_position, op.frequencies, op.inverse ? -1.0f : 1.0f, op.document_starts);
    });
  });
}

}  // namespace tetrad::cuda
