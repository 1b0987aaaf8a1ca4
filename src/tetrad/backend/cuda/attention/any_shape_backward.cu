// SPDX-License-Identifier: Apache-2.0
// Attention of any shape, backward. As on tensor cores, a block owns queries or keys, so that every sum is
// one warp's and has a fixed order.

#include "tetrad/backend/cuda/attention/any_shape.cuh"
#include "tetrad/backend/cuda/attention/kernels.h"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

template <typename T>
struct Parameters {
  AnyShape shape;
  int blocks;  //!< for each key/value head of a sequence
  View<const T> q, k, v, out, dout;
  View<T> dq, dk, dv;
  const float* log_sum_exp;  //!< [batch, heads, sequence]
  float* delta;              //!< dout . out, like it
};

/// One warp per query.
template <typename T>
__global__ void __launch_bounds__(kAnyThreads) any_delta_kernel(Parameters<T> p, std::int64_t positions) {
  const AnyShape& shape = p.shape;
  const std::int64_t position = std::int64_t{blockIdx.x} * kAnyRows + static_cast<int>(threadIdx.x) / kWarp;
  if (position >= positions) return;
  const std::int64_t head = position / shape.sequence % shape.heads;
  const std::int64_t row =
      position / shape.sequence / shape.heads * shape.sequence + position % shape.sequence;
  const T* const out = p.out.row(row) + head * shape.head_dim;
  const T* const dout = p.dout.row(row) + head * shape.head_dim;
  float sum = 0;
  for (int col = static_cast<int>(threadIdx.x) % kWarp; col < shape.head_dim; col += kWarp)
    sum += to_f32(out[col]) * to_f32(dout[col]);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) p.delta[position] = sum;
}

/// dq: blocks as in the forward pass.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kAnyThreads) any_queries_kernel(Parameters<T> p) {
  const AnyShape& shape = p.shape;
  auto* const tile = reinterpret_cast<float*>(shared_memory());
  float* const own_q = tile + shape.tile_size() + static_cast<int>(threadIdx.x) / kWarp * 2 * shape.width();
  float* const own_dout = own_q + shape.width();

  const std::int64_t block = blockIdx.x;
  const std::int64_t batch = block / p.blocks / shape.kv_heads;
  const int kv_head = static_cast<int>(block / p.blocks % shape.kv_heads);
  const OwnQuery query(shape, static_cast<int>(block % p.blocks), kv_head);
  const std::int64_t row = batch * shape.sequence;
  const std::int64_t col = query.head * shape.head_dim;
  load_own_row(shape, p.q.row(row + query.token) + col, query.exists, own_q);
  load_own_row(shape, p.dout.row(row + query.token) + col, query.exists, own_dout);
  const std::int64_t position = (batch * shape.heads + query.head) * shape.sequence + query.token;
  const float log_sum_exp = p.log_sum_exp[position];
  const float delta = p.delta[position];
  const int first_key = shape.first_key(batch, query.token);

  float sums[kAnyColumns] = {};
  for (int key = 0; key <= query.last_token; key += kAnyOthers) {
    const int count = min(kAnyOthers, query.last_token + 1 - key);
    const int seen = max(0, min(count, query.token + 1 - key));
    const std::int64_t kv_col = kv_head * shape.head_dim;
    __syncthreads();
    load_tile<T, kWidth>(shape, p.v.row(row + key) + kv_col, p.v.stride, count, tile);
    __syncthreads();
    const float gradient = dot(shape, own_dout, tile);
    __syncthreads();
    load_tile<T, kWidth>(shape, p.k.row(row + key) + kv_col, p.k.stride, count, tile);
    __syncthreads();
    const float probability = expf(dot(shape, own_q, tile) * shape.scale - log_sum_exp);
    add_rows(shape, tile, probability * (gradient - delta), max(0, first_key - key), seen, sums);
  }
  if (query.exists) store_row(shape, sums, shape.scale, p.dq.row(row + query.token) + col);
}

/// dk and dv: a warp has a key, and walks over the queries at or after it, head by head of the group.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kAnyThreads) any_keys_kernel(Parameters<T> p) {
  const AnyShape& shape = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  auto* const q_tile = reinterpret_cast<float*>(shared_memory());
  float* const dout_tile = q_tile + shape.tile_size();
  float* const own_k =
      dout_tile + shape.tile_size() + static_cast<int>(threadIdx.x) / kWarp * 2 * shape.width();
  float* const own_v = own_k + shape.width();

  const std::int64_t block = blockIdx.x;
  const std::int64_t batch = block / p.blocks / shape.kv_heads;
  const std::int64_t kv_head = block / p.blocks % shape.kv_heads;
  const int first = static_cast<int>(block % p.blocks) * kAnyRows;
  const int key = first + static_cast<int>(threadIdx.x) / kWarp;
  const bool exists = key < shape.sequence;
  const std::int64_t row = batch * shape.sequence;
  const std::int64_t kv_row = row + min(key, shape.sequence - 1);
  const std::int64_t kv_col = kv_head * shape.head_dim;
  load_own_row(shape, p.k.row(kv_row) + kv_col, exists, own_k);
  load_own_row(shape, p.v.row(kv_row) + kv_col, exists, own_v);

  float dk[kAnyColumns] = {};
  float dv[kAnyColumns] = {};
  for (std::int64_t head = kv_head * shape.group; head < (kv_head + 1) * shape.group; ++head)
    for (int query = first; query < shape.sequence; query += kAnyOthers) {
      const int count = min(kAnyOthers, shape.sequence - query);
      const int begin = max(0, key - query);  // earlier queries do not see the key
      const std::int64_t col = head * shape.head_dim;
      __syncthreads();
      load_tile<T, kWidth>(shape, p.q.row(row + query) + col, p.q.stride, count, q_tile);
      load_tile<T, kWidth>(shape, p.dout.row(row + query) + col, p.dout.stride, count, dout_tile);
      __syncthreads();
      const std::int64_t position =
          (batch * shape.heads + head) * shape.sequence + query + min(lane, count - 1);
      const float score = dot(shape, own_k, q_tile) * shape.scale;
      const bool sees = shape.first_key(batch, query + min(lane, count - 1)) <= key;
      const float probability = sees ? expf(score - p.log_sum_exp[position]) : 0;
      const float gradient = dot(shape, own_v, dout_tile);
      add_rows(shape, dout_tile, probability, begin, count, dv);
      add_rows(shape, q_tile, probability * (gradient - p.delta[position]), begin, count, dk);
    }
  if (!exists) return;
  store_row(shape, dk, shape.scale, p.dk.row(kv_row) + kv_col);
  store_row(shape, dv, 1, p.dv.row(kv_row) + kv_col);
}

}  // namespace

void attention_of_any_shape(Device& device, const AttentionBackward& op) {
  const AttentionShape& shape = op.shape;
  const auto differentiate = [&]<typename T>(T, auto width) {
    Parameters<T> p{};
    p.shape = any_shape(shape, 0, op.document_starts);
    p.q = view_as<T>(op.q);
    p.k = view_as<T>(op.k);
    p.v = view_as<T>(op.v);
    p.out = view_as<T>(op.out);
    p.dout = view_as<T>(op.dout);
    p.dq = view_as<T>(op.dq);
    p.dk = view_as<T>(op.dk);
    p.dv = view_as<T>(op.dv);
    p.log_sum_exp = op.log_sum_exp;
    const std::int64_t positions = shape.batch * shape.heads * shape.sequence;
    p.delta = device.scratch<float>(Device::attention, positions);
    launch(device, ceil_div(positions, kAnyRows), kAnyThreads, 0, any_delta_kernel<T>, p, positions);

    const std::int64_t own = kAnyRows * 2 * p.shape.width();
    const auto bytes = [&](int tiles) {
      return static_cast<std::size_t>(own + tiles * p.shape.tile_size()) * sizeof(float);
    };
    p.blocks = static_cast<int>(ceil_div(shape.sequence, kAnyRows));
    launch_with_shared(device, shape.batch * shape.kv_heads * p.blocks, kAnyThreads, bytes(2),
                       any_keys_kernel<T, width>, p);
    p.blocks = static_cast<int>(ceil_div(shape.sequence * p.shape.group, kAnyRows));
    launch_with_shared(device, shape.batch * shape.kv_heads * p.blocks, kAnyThreads, bytes(1),
                       any_queries_kernel<T, width>, p);
  };
  with_type(op.q.dtype, [&](auto type) {
    with_any_width(
        shape, [&](auto width) { differentiate(type, width); }, op.q, op.k, op.v, op.dout);
  });
}

}  // namespace tetrad::cuda
