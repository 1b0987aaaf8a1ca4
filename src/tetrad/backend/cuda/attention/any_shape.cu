// SPDX-License-Identifier: Apache-2.0
// Attention of any shape, forward and decode. Where there are few queries, blocks share out the keys of each,
// and a second kernel puts their results together.

#include "tetrad/backend/cuda/attention/any_shape.cuh"

#include <algorithm>

#include "tetrad/backend/cuda/attention/kernels.h"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

template <typename T>
struct Parameters {
  AnyShape shape;
  int query_blocks;        //!< for each key/value head of a sequence
  int splits, split_keys;  //!< parts of the keys, and their size
  View<const T> q, k, v;
  View<T> out;
  float* log_sum_exp;
  float* partial;  //!< [splits, batch, heads, sequence, head_dim + 2]: sums, largest score, sum of weights
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kAnyThreads) any_forward_kernel(Parameters<T> p) {
  const AnyShape& shape = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  auto* const tile = reinterpret_cast<float*>(shared_memory());
  float* const own = tile + shape.tile_size() + static_cast<int>(threadIdx.x) / kWarp * shape.width();

  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const std::int64_t block = blockIdx.x / p.splits;
  const std::int64_t batch = block / p.query_blocks / shape.kv_heads;
  const int kv_head = static_cast<int>(block / p.query_blocks % shape.kv_heads);
  const OwnQuery query(shape, static_cast<int>(block % p.query_blocks), kv_head);
  const std::int64_t q_row = batch * shape.sequence + query.token;
  const std::int64_t kv_row = batch * (shape.cached + shape.sequence);
  load_own_row(shape, p.q.row(q_row) + query.head * shape.head_dim, query.exists, own);

  const int end = min(shape.cached + query.last_token + 1, (split + 1) * p.split_keys);
  const int first_key = shape.first_key(batch, query.token);
  float sums[kAnyColumns] = {};
  float largest = -INFINITY;
  float sum = 0;
  for (int key = split * p.split_keys; key < end; key += kAnyOthers) {
    const int count = min(kAnyOthers, end - key);
    const int seen = max(0, min(count, shape.cached + query.token + 1 - key));
    const int hidden = max(0, first_key - key);
    const bool sees = lane >= hidden && lane < seen;
    const std::int64_t col = kv_head * shape.head_dim;
    __syncthreads();
    load_tile<T, kWidth>(shape, p.k.row(kv_row + key) + col, p.k.stride, count, tile);
    __syncthreads();
    const float score = sees ? dot(shape, own, tile) * shape.scale : -INFINITY;
    __syncthreads();
    load_tile<T, kWidth>(shape, p.v.row(kv_row + key) + col, p.v.stride, count, tile);
    __syncthreads();
    const float previous = largest;
    largest = fmaxf(largest, warp_max(score));
    const float factor = previous == largest ? 1 : expf(previous - largest);
    const float weight = sees ? expf(score - largest) : 0;
    sum = sum * factor + warp_sum(weight);
#pragma unroll
    for (float& column : sums) column *= factor;
    add_rows(shape, tile, weight, hidden, seen, sums);
  }

  if (!query.exists) return;
  const std::int64_t position = (batch * shape.heads + query.head) * shape.sequence + query.token;
  if (p.splits == 1) {
    store_row(shape, sums, 1 / sum, p.out.row(q_row) + query.head * shape.head_dim);
    if (lane == 0 && p.log_sum_exp != nullptr) p.log_sum_exp[position] = largest + logf(sum);
    return;
  }
  const std::int64_t positions =
      std::int64_t{gridDim.x} / p.splits / p.query_blocks * shape.group * shape.sequence;
  float* const partial = p.partial + (split * positions + position) * (shape.head_dim + 2);
  store_row(shape, sums, 1, partial);
  if (lane != 0) return;
  partial[shape.head_dim] = largest;
  partial[shape.head_dim + 1] = sum;
}

/// One warp per query, over its splits in their order.
template <typename T>
__global__ void __launch_bounds__(kAnyThreads) combine_kernel(Parameters<T> p, std::int64_t positions) {
  const AnyShape& shape = p.shape;
  const std::int64_t position = std::int64_t{blockIdx.x} * kAnyRows + static_cast<int>(threadIdx.x) / kWarp;
  if (position >= positions) return;
  const auto part = [&](int split) {
    return p.partial + (split * positions + position) * (shape.head_dim + 2);
  };
  float largest = -INFINITY;
  for (int split = 0; split < p.splits; ++split) largest = fmaxf(largest, part(split)[shape.head_dim]);
  float sums[kAnyColumns] = {};
  float sum = 0;
  for (int split = 0; split < p.splits; ++split) {
    const float* const from = part(split);
    const float part_largest = from[shape.head_dim];
    const float factor = part_largest == largest ? 1 : expf(part_largest - largest);
    sum += from[shape.head_dim + 1] * factor;
#pragma unroll
    for (int i = 0; i < kAnyColumns; ++i) {
      const int col = static_cast<int>(threadIdx.x) % kWarp + i * kWarp;
      if (col < shape.head_dim) sums[i] += from[col] * factor;
    }
  }
  const std::int64_t head = position / shape.sequence % shape.heads;
  const std::int64_t row =
      position / shape.sequence / shape.heads * shape.sequence + position % shape.sequence;
  store_row(shape, sums, 1 / sum, p.out.row(row) + head * shape.head_dim);
  if (threadIdx.x % kWarp == 0 && p.log_sum_exp != nullptr) p.log_sum_exp[position] = largest + logf(sum);
}

/// Parts of at least 64 keys each, so that some 512 blocks have something to do. It depends on the shape
/// alone, as does therefore the result.
template <typename T>
void share_out_keys(std::int64_t keys, std::int64_t blocks, Parameters<T>& p) {
  constexpr std::int64_t kFewestKeys = 64;
  constexpr std::int64_t kBlocks = 512;
  const std::int64_t splits = std::clamp(kBlocks / blocks, std::int64_t{1}, ceil_div(keys, kFewestKeys));
  p.split_keys = static_cast<int>(ceil_div(ceil_div(keys, splits), kAnyOthers) * kAnyOthers);
  p.splits = static_cast<int>(ceil_div(keys, p.split_keys));
}

}  // namespace

void attention_of_any_shape(Device& device, const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  const auto attend = [&]<typename T>(T, auto width) {
    Parameters<T> p{};
    p.shape = any_shape(shape, problem.cached, problem.document_starts);
    p.query_blocks = static_cast<int>(ceil_div(shape.sequence * p.shape.group, kAnyRows));
    p.q = view_as<T>(problem.q);
    p.k = view_as<T>(problem.k);
    p.v = view_as<T>(problem.v);
    p.out = view_as<T>(problem.out);
    p.log_sum_exp = problem.log_sum_exp;
    const std::int64_t blocks = shape.batch * shape.kv_heads * p.query_blocks;
    share_out_keys(problem.keys(), blocks, p);
    const std::int64_t positions = shape.batch * shape.heads * shape.sequence;
    if (p.splits > 1)
      p.partial = device.scratch<float>(Device::attention, p.splits * positions * (shape.head_dim + 2));
    const auto bytes =
        static_cast<std::size_t>(p.shape.tile_size() + kAnyRows * p.shape.width()) * sizeof(float);
    launch(device, blocks * p.splits, kAnyThreads, bytes, any_forward_kernel<T, width>, p);
    if (p.splits > 1)
      launch(device, ceil_div(positions, kAnyRows), kAnyThreads, 0, combine_kernel<T>, p, positions);
  };
  with_type(problem.q.dtype, [&](auto type) {
    with_any_width(
        shape, [&](auto width) { attend(type, width); }, problem.k, problem.v);
  });
}

}  // namespace tetrad::cuda
