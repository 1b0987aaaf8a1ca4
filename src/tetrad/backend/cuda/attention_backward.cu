// Attention on tensor cores, backward. Scores are computed again from log_sum_exp, twice: a block either owns
// keys and walks over queries (dk, dv), or owns queries and walks over keys (dq). So every sum is one
// thread's and has a fixed order.

#include "tetrad/backend/cuda/attention_kernels.h"
#include "tetrad/backend/cuda/attention_tile.cuh"
#include "tetrad/backend/cuda/element.cuh"

namespace tetrad::cuda {
namespace {

struct Parameters {
  int sequence;
  int heads, kv_heads;
  int group;  //!< query heads of one key/value head
  int pairs;  //!< batch times the heads that blocks are made for
  float scale;
  View<const Bf16> q, k, v, out, dout;
  View<Bf16> dq, dk, dv;
  const float* log_sum_exp;  //!< [batch, heads, sequence]
  float* delta;              //!< dout . out, like it
};

/// delta: kDim / 8 lanes have a row of one head.
template <int kDim>
__global__ void delta_kernel(Parameters p, std::int64_t rows) {
  constexpr int kLanes = kDim / 8;
  const std::int64_t index = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
  const std::int64_t head = index % p.heads;
  const std::int64_t row = min(index / p.heads, rows - 1);  // every lane takes part in the sum
  const std::int64_t col = head * kDim + threadIdx.x % kLanes * 8;
  float out[8];
  float dout[8];
  load(p.out.row(row) + col, out);
  load(p.dout.row(row) + col, dout);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += out[i] * dout[i];
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x % kLanes == 0 && index / p.heads < rows)
    p.delta[(row / p.sequence * p.heads + head) * p.sequence + row % p.sequence] = sum;
}

/// How a block that owns keys cuts its work.
template <int kDim>
struct KeyTiles {
  static constexpr int kM =
      kDim == 64 ? 2 : 1;  //!< 16-row fragments of a warp: two sums of kDim columns each
  static constexpr int kWarps = kDim == 64 ? 4 : 8;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kKeys = kWarps * 16 * kM;
  static constexpr int kQueries = 64;  //!< copied together
  static constexpr int kStep = 32;     //!< of them at a time in registers
  static constexpr unsigned kTile = tile_bytes<kDim>(kQueries);
  static constexpr unsigned kBytes =
      tile_bytes<kDim>(2 * kKeys) + 2 * 2 * kTile + 2 * 2 * kQueries * sizeof(float);
};

/// From scores [keys, queries] and gradients of probabilities to probabilities and gradients of scores.
/// `key` and `query` are the first ones' positions.
template <bool kMasked, int kM, int kN>
__device__ inline void differentiate_columns(float (&p)[kM][kN][4], float (&ds)[kM][kN][4], float scale,
                                             const float* log_sum_exp, const float* delta, int key,
                                             int query) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int col = 8 * n + lane % 4 * 2 + c;
      const float offset = log_sum_exp[col] * kLog2E;
      const float shift = delta[col];
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i) {
        float& probability = p[i / 2][n][i % 2 * 2 + c];
        float& gradient = ds[i / 2][n][i % 2 * 2 + c];
        probability = fast_exp2(probability * scale - offset);
        if (kMasked && key + 8 * i + lane / 4 > query + col) probability = 0;
        gradient = probability * (gradient - shift);
      }
    }
}

template <int kDim>
__global__ void __launch_bounds__(KeyTiles<kDim>::kThreads, kDim == 64 ? 2 : 1) keys_kernel(Parameters p) {
  using Cut = KeyTiles<kDim>;
  constexpr int kM = Cut::kM;
  constexpr int kN = Cut::kStep / 8;
  constexpr int kThreads = Cut::kThreads;
  unsigned char* const shared = shared_memory();
  unsigned char* const stages = shared + tile_bytes<kDim>(2 * Cut::kKeys);         // [2] of queries and dout
  const float* const numbers = reinterpret_cast<float*>(stages + 4 * Cut::kTile);  // [2, 2, kQueries]
  const unsigned k_tile = shared_address(shared);
  const unsigned v_tile = k_tile + tile_bytes<kDim>(Cut::kKeys);

  const std::int64_t batch = blockIdx.x % p.pairs / p.kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % p.pairs % p.kv_heads;
  const int first = static_cast<int>(blockIdx.x) / p.pairs * Cut::kKeys;  // these have the most queries
  const std::int64_t row = batch * p.sequence;                            // of the sequence
  copy_tile<kDim, Cut::kKeys, kThreads>(k_tile, p.k.row(row + first) + kv_head * kDim, p.k.stride,
                                        p.sequence - first);
  copy_tile<kDim, Cut::kKeys, kThreads>(v_tile, p.v.row(row + first) + kv_head * kDim, p.v.stride,
                                        p.sequence - first);

  // Tiles of queries: those at or after the keys, for each head of the group.
  const int first_tile = first / Cut::kQueries;
  const int tiles = (p.sequence + Cut::kQueries - 1) / Cut::kQueries - first_tile;
  const auto position = [&](int index) { return (first_tile + index % tiles) * Cut::kQueries; };
  const auto copy_queries = [&](int index) {
    const std::int64_t head = kv_head * p.group + index / tiles;
    const int query = position(index);
    const int count = p.sequence - query;
    const unsigned to = shared_address(stages) + index % 2 * 2 * Cut::kTile;
    copy_tile<kDim, Cut::kQueries, kThreads>(to, p.q.row(row + query) + head * kDim, p.q.stride, count);
    copy_tile<kDim, Cut::kQueries, kThreads>(to + Cut::kTile, p.dout.row(row + query) + head * kDim,
                                             p.dout.stride, count);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= 2 * Cut::kQueries) return;
    const int i = thread % Cut::kQueries;
    const float* from =
        (thread < Cut::kQueries ? p.log_sum_exp : p.delta) + (batch * p.heads + head) * p.sequence + query;
    copy_async<4>(shared_address(numbers) + (index % 2 * 2 * Cut::kQueries + thread) * 4u,
                  from + (i < count ? i : 0), i < count);
  };
  copy_queries(0);

  const unsigned warp_row = static_cast<unsigned>(warp_index()) * 16 * kM;
  const int key = first + static_cast<int>(warp_row);  // the warp's first
  const unsigned k_place = k_tile + warp_row * kRowBytes<kDim> + left_place<kDim>();
  const unsigned v_place = v_tile + warp_row * kRowBytes<kDim> + left_place<kDim>();
  const float scale = p.scale * kLog2E;
  float dk[kM][kDim / 8][4] = {};
  float dv[kM][kDim / 8][4] = {};
  for (int index = 0; index < tiles * p.group; ++index) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (index + 1 < tiles * p.group) copy_queries(index + 1);
    if (key >= p.sequence) continue;
#pragma unroll 1
    for (int step = 0; step < Cut::kQueries; step += Cut::kStep) {
      const int query = position(index) + step;
      if (query + Cut::kStep <= key) continue;  // all of them come before the keys
      const unsigned q_rows =
          shared_address(stages) + index % 2 * 2 * Cut::kTile + static_cast<unsigned>(step) * kRowBytes<kDim>;
      const unsigned dout_rows = q_rows + Cut::kTile;
      const float* const log_sum_exp = numbers + index % 2 * 2 * Cut::kQueries + step;
      const float* const delta = log_sum_exp + Cut::kQueries;
      float scores[kM][kN][4];
      float ds[kM][kN][4];
      multiply_rows<kDim>(scores, k_place, q_rows + right_place<kDim>());
      multiply_rows<kDim>(ds, v_place, dout_rows + right_place<kDim>());
      if (query < key + 16 * kM)
        differentiate_columns<true>(scores, ds, scale, log_sum_exp, delta, key, query);
      else
        differentiate_columns<false>(scores, ds, scale, log_sum_exp, delta, key, query);
      Fragment left[kM][kN / 2];
      to_fragments(scores, left);
      multiply_add_columns<kDim>(dv, left, dout_rows + left_place<kDim>());
      to_fragments(ds, left);
      multiply_add_columns<kDim>(dk, left, q_rows + left_place<kDim>());
    }
  }
  if (key >= p.sequence) return;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = 1;
  unsigned char* const room = shared + warp_row * kRowBytes<kDim>;
  store_rows<kDim, kM>(dv, factor, room, p.dv.row(row + key) + kv_head * kDim, p.dv.stride, p.sequence - key);
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = p.scale;
  store_rows<kDim, kM>(dk, factor, room, p.dk.row(row + key) + kv_head * kDim, p.dk.stride, p.sequence - key);
}

/// How a block that owns queries cuts its work.
template <int kDim>
struct QueryTiles {
  static constexpr int kM = 2;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kQueries = kWarps * 16 * kM;
  static constexpr int kKeys = kDim == 64 ? 64 : 32;  //!< copied together
  static constexpr int kStep = 32;                    //!< of them at a time in registers
  static constexpr unsigned kTile = tile_bytes<kDim>(kKeys);
  static constexpr unsigned kBytes = tile_bytes<kDim>(2 * kQueries + 4 * kKeys);
};

/// From scores [queries, keys] and gradients of probabilities to gradients of scores. Row i of a lane is row
/// g + 8i of the warp; its log_sum_exp is in units of log 2.
template <bool kMasked, int kM, int kN>
__device__ inline void differentiate_rows(const float (&scores)[kM][kN][4], float (&ds)[kM][kN][4],
                                          float scale, const float (&log_sum_exp)[2 * kM],
                                          const float (&delta)[2 * kM], int query, int key) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 2 * m + e / 2;
        float probability = fast_exp2(scores[m][n][e] * scale - log_sum_exp[i]);
        if (kMasked && key + 8 * n + lane % 4 * 2 + e % 2 > query + 8 * i + lane / 4) probability = 0;
        ds[m][n][e] = probability * (ds[m][n][e] - delta[i]);
      }
}

template <int kDim>
__global__ void __launch_bounds__(QueryTiles<kDim>::kThreads, kDim == 64 ? 3 : 2)
    queries_kernel(Parameters p) {
  using Cut = QueryTiles<kDim>;
  constexpr int kM = Cut::kM;
  constexpr int kN = Cut::kStep / 8;
  constexpr int kThreads = Cut::kThreads;
  unsigned char* const shared = shared_memory();
  const unsigned q_tile = shared_address(shared);
  const unsigned dout_tile = q_tile + tile_bytes<kDim>(Cut::kQueries);
  const unsigned kv_tiles = dout_tile + tile_bytes<kDim>(Cut::kQueries);  // [2] of keys and values

  const std::int64_t pair = blockIdx.x % p.pairs;
  const std::int64_t head = pair % p.heads;
  const int blocks = (p.sequence + Cut::kQueries - 1) / Cut::kQueries;
  const int first =
      (blocks - 1 - static_cast<int>(blockIdx.x) / p.pairs) * Cut::kQueries;  // the longest first
  const std::int64_t row = pair / p.heads * p.sequence;                       // of the sequence
  const Bf16* const k = p.k.row(row) + head / p.group * kDim;
  const Bf16* const v = p.v.row(row) + head / p.group * kDim;
  const auto copy_keys = [&](int tile) {
    const unsigned to = kv_tiles + tile % 2 * 2 * Cut::kTile;
    const std::int64_t from = tile * Cut::kKeys;
    const int count = p.sequence - tile * Cut::kKeys;
    copy_tile<kDim, Cut::kKeys, kThreads>(to, k + from * p.k.stride, p.k.stride, count);
    copy_tile<kDim, Cut::kKeys, kThreads>(to + Cut::kTile, v + from * p.v.stride, p.v.stride, count);
  };
  copy_tile<kDim, Cut::kQueries, kThreads>(q_tile, p.q.row(row + first) + head * kDim, p.q.stride,
                                           p.sequence - first);
  copy_tile<kDim, Cut::kQueries, kThreads>(dout_tile, p.dout.row(row + first) + head * kDim, p.dout.stride,
                                           p.sequence - first);
  copy_keys(0);

  const unsigned warp_row = static_cast<unsigned>(warp_index()) * 16 * kM;
  const int query = first + static_cast<int>(warp_row);  // the warp's first
  const unsigned q_place = q_tile + warp_row * kRowBytes<kDim> + left_place<kDim>();
  const unsigned dout_place = dout_tile + warp_row * kRowBytes<kDim> + left_place<kDim>();
  const float scale = p.scale * kLog2E;
  float log_sum_exp[2 * kM];
  float delta[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int position = query + 8 * i + lane_index() / 4;
    const bool exists = position < p.sequence;
    log_sum_exp[i] = exists ? p.log_sum_exp[pair * p.sequence + position] * kLog2E : 0;
    delta[i] = exists ? p.delta[pair * p.sequence + position] : 0;
  }
  float dq[kM][kDim / 8][4] = {};
  const int tiles = (min(first + Cut::kQueries, p.sequence) + Cut::kKeys - 1) / Cut::kKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    if (query >= p.sequence) continue;
#pragma unroll 1
    for (int step = 0; step < Cut::kKeys; step += Cut::kStep) {
      const int key = tile * Cut::kKeys + step;
      if (key >= query + 16 * kM) continue;  // all of them come after the queries
      const unsigned k_rows =
          kv_tiles + tile % 2 * 2 * Cut::kTile + static_cast<unsigned>(step) * kRowBytes<kDim>;
      float scores[kM][kN][4];
      float ds[kM][kN][4];
      multiply_rows<kDim>(scores, q_place, k_rows + right_place<kDim>());
      multiply_rows<kDim>(ds, dout_place, k_rows + Cut::kTile + right_place<kDim>());
      if (key + Cut::kStep - 1 > query)
        differentiate_rows<true>(scores, ds, scale, log_sum_exp, delta, query, key);
      else
        differentiate_rows<false>(scores, ds, scale, log_sum_exp, delta, query, key);
      Fragment left[kM][kN / 2];
      to_fragments(ds, left);
      multiply_add_columns<kDim>(dq, left, k_rows + left_place<kDim>());
    }
  }
  if (query >= p.sequence) return;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = p.scale;
  store_rows<kDim, kM>(dq, factor, shared + warp_row * kRowBytes<kDim>, p.dq.row(row + query) + head * kDim,
                       p.dq.stride, p.sequence - query);
}

template <int kDim>
void backward(Device& device, const AttentionBackward& op) {
  constexpr int kDeltaThreads = 256;
  const AttentionShape& shape = op.shape;
  const std::int64_t rows = shape.batch * shape.sequence;
  Parameters p{};
  p.sequence = static_cast<int>(shape.sequence);
  p.heads = static_cast<int>(shape.heads);
  p.kv_heads = static_cast<int>(shape.kv_heads);
  p.group = p.heads / p.kv_heads;
  p.scale = shape.scale;
  p.q = view_as<Bf16>(op.q);
  p.k = view_as<Bf16>(op.k);
  p.v = view_as<Bf16>(op.v);
  p.out = view_as<Bf16>(op.out);
  p.dout = view_as<Bf16>(op.dout);
  p.dq = view_as<Bf16>(op.dq);
  p.dk = view_as<Bf16>(op.dk);
  p.dv = view_as<Bf16>(op.dv);
  p.log_sum_exp = op.log_sum_exp;
  p.delta = device.scratch<float>(Device::attention, rows * shape.heads);
  launch(device, ceil_div(rows * shape.heads * kDim / 8, kDeltaThreads), kDeltaThreads, 0, delta_kernel<kDim>,
         p, rows);

  using Keys = KeyTiles<kDim>;
  p.pairs = static_cast<int>(shape.batch * shape.kv_heads);
  launch_with_shared(device, ceil_div(shape.sequence, Keys::kKeys) * p.pairs, Keys::kThreads, Keys::kBytes,
                     keys_kernel<kDim>, p);
  using Queries = QueryTiles<kDim>;
  p.pairs = static_cast<int>(shape.batch * shape.heads);
  launch_with_shared(device, ceil_div(shape.sequence, Queries::kQueries) * p.pairs, Queries::kThreads,
                     Queries::kBytes, queries_kernel<kDim>, p);
}

}  // namespace

void attention_on_tensor_cores(Device& device, const AttentionBackward& op) {
  if (op.shape.head_dim == 64)
    backward<64>(device, op);
  else
    backward<128>(device, op);
}

}  // namespace tetrad::cuda
