// Attention on tensor cores, forward and decode of many tokens. A block has 128 queries of one head, each of
// its warps 32 of them; it walks over tiles of keys while the next tile is on its way.

#include "tetrad/backend/cuda/attention_kernels.h"
#include "tetrad/backend/cuda/attention_tile.cuh"
#include "tetrad/backend/cuda/element.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kQueries = 128;
constexpr int kKeys = 64;
constexpr int kM = 2;  //!< 16-row fragments of a warp: each load of keys or values serves both
constexpr int kN = kKeys / 8;
constexpr int kWarpRows = 16 * kM;
constexpr int kThreads = kQueries / kWarpRows * kWarp;

struct Parameters {
  int sequence, cached;
  int heads, group;  //!< query heads: all, and those of one key/value head
  int pairs;         //!< batch * heads
  int tiles;         //!< of queries
  float scale;
  View<const Bf16> q, k, v;
  View<Bf16> out;
  float* log_sum_exp;
};

/// The running softmax of a lane's rows, in units of log 2. Row i is row g + 8i of the warp.
struct Softmax {
  float reference[2 * kM];  //!< what exponents are relative to: at most kSlack below the largest score
  float sum[2 * kM];        //!< of the lane's own columns
};

/// Scores become probabilities relative to the reference. Sums and results are only scaled to a new reference
/// when a score exceeds the old one by 2^kSlack: less would change nothing but the time it takes.
template <int kDim>
__device__ inline void update_softmax(float (&scores)[kM][kN][4], float scale, Softmax& softmax,
                                      float (&out)[kM][kDim / 8][4]) {
  constexpr float kSlack = 8;
  float factor[2 * kM];
  bool grew = false;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    float largest = scores[i / 2][0][i % 2 * 2];
#pragma unroll
    for (int n = 0; n < kN; ++n)
      largest = fmaxf(largest, fmaxf(scores[i / 2][n][i % 2 * 2], scores[i / 2][n][i % 2 * 2 + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2)) * scale;
    const bool grows = largest > softmax.reference[i] + kSlack;
    factor[i] = grows ? fast_exp2(softmax.reference[i] - largest) : 1.0f;
    if (grows) softmax.reference[i] = largest;
    grew |= grows;
  }
  if (__any_sync(kAllLanes, grew)) {
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      softmax.sum[i] *= factor[i];
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[i / 2][n][i % 2 * 2] *= factor[i];
        out[i / 2][n][i % 2 * 2 + 1] *= factor[i];
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 2 * m + e / 2;
        const float p = fast_exp2(scores[m][n][e] * scale - softmax.reference[i]);
        scores[m][n][e] = p;
        softmax.sum[i] += p;
      }
}

/// Keys after a query's own do not count. `query` and `key` are the first ones' positions in the sequence.
__device__ inline void mask(float (&scores)[kM][kN][4], int query, int key) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (key + 8 * n + lane % 4 * 2 + e % 2 > query + 16 * m + e / 2 * 8 + lane / 4)
          scores[m][n][e] = -INFINITY;
}

template <int kDim>
__device__ inline void finish(const Parameters& p, Softmax& softmax, const float (&out)[kM][kDim / 8][4],
                              unsigned char* tile, std::int64_t pair, int first) {
  const int count = p.sequence - first;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    softmax.sum[i] += __shfl_xor_sync(kAllLanes, softmax.sum[i], 1);
    softmax.sum[i] += __shfl_xor_sync(kAllLanes, softmax.sum[i], 2);
    factor[i] = 1 / softmax.sum[i];
    const int row = 8 * i + lane_index() / 4;
    if (p.log_sum_exp != nullptr && lane_index() % 4 == 0 && row < count)
      p.log_sum_exp[pair * p.sequence + first + row] = softmax.reference[i] * kLn2 + logf(softmax.sum[i]);
  }
  Bf16* to = p.out.row(pair / p.heads * p.sequence + first) + pair % p.heads * kDim;
  store_rows<kDim, kM>(out, factor, tile, to, p.out.stride, count);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, kDim == 64 ? 3 : 2) forward_kernel(Parameters p) {
  constexpr unsigned kTile = tile_bytes<kDim>(kKeys);
  unsigned char* const shared = shared_memory();
  const unsigned q_tile = shared_address(shared);
  const unsigned kv_tiles = q_tile + tile_bytes<kDim>(kQueries);  // keys, values; and again for the next ones

  const std::int64_t pair = blockIdx.x % p.pairs;
  const int first = (p.tiles - 1 - static_cast<int>(blockIdx.x) / p.pairs) * kQueries;  // the longest first
  const std::int64_t batch = pair / p.heads;
  const std::int64_t head = pair % p.heads;
  const int keys = p.cached + p.sequence;
  const Bf16* const k = p.k.row(batch * keys) + head / p.group * kDim;
  const Bf16* const v = p.v.row(batch * keys) + head / p.group * kDim;
  const auto copy_keys = [&](int tile) {
    const unsigned to = kv_tiles + tile % 2 * 2 * kTile;
    const std::int64_t row = tile * kKeys;
    copy_tile<kDim, kKeys, kThreads>(to, k + row * p.k.stride, p.k.stride, keys - tile * kKeys);
    copy_tile<kDim, kKeys, kThreads>(to + kTile, v + row * p.v.stride, p.v.stride, keys - tile * kKeys);
  };
  copy_tile<kDim, kQueries, kThreads>(q_tile, p.q.row(batch * p.sequence + first) + head * kDim, p.q.stride,
                                      p.sequence - first);
  copy_keys(0);

  const int warp_row = warp_index() * kWarpRows;
  const int query = p.cached + first + warp_row;  // position of the warp's first query
  const bool idle = first + warp_row >= p.sequence;
  const float scale = p.scale * kLog2E;
  Softmax softmax;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) softmax.reference[i] = -INFINITY, softmax.sum[i] = 0;
  float out[kM][kDim / 8][4] = {};

  const int tiles = (min(p.cached + first + kQueries, keys) + kKeys - 1) / kKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    const int key = tile * kKeys;
    if (idle || key >= query + kWarpRows) continue;
    const unsigned keys_tile = kv_tiles + tile % 2 * 2 * kTile;
    float scores[kM][kN][4];
    multiply_rows<kDim>(scores,
                        q_tile + static_cast<unsigned>(warp_row) * kRowBytes<kDim> + left_place<kDim>(),
                        keys_tile + right_place<kDim>());
    if (key + kKeys - 1 > query) mask(scores, query, key);
    update_softmax<kDim>(scores, scale, softmax, out);
    Fragment probabilities[kM][kN / 2];
    to_fragments(scores, probabilities);
    multiply_add_columns<kDim>(out, probabilities, keys_tile + kTile + left_place<kDim>());
  }
  if (!idle) finish<kDim>(p, softmax, out, shared + warp_row * kRowBytes<kDim>, pair, first + warp_row);
}

template <int kDim>
void forward(Device& device, const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  Parameters p{};
  p.sequence = static_cast<int>(shape.sequence);
  p.cached = static_cast<int>(problem.cached);
  p.heads = static_cast<int>(shape.heads);
  p.group = static_cast<int>(shape.heads / shape.kv_heads);
  p.pairs = static_cast<int>(shape.batch * shape.heads);
  p.tiles = static_cast<int>(ceil_div(shape.sequence, kQueries));
  p.scale = shape.scale;
  p.q = view_as<Bf16>(problem.q);
  p.k = view_as<Bf16>(problem.k);
  p.v = view_as<Bf16>(problem.v);
  p.out = view_as<Bf16>(problem.out);
  p.log_sum_exp = problem.log_sum_exp;
  launch_with_shared(device, std::int64_t{p.tiles} * p.pairs, kThreads,
                     tile_bytes<kDim>(kQueries + 4 * kKeys), forward_kernel<kDim>, p);
}

}  // namespace

void attention_on_tensor_cores(Device& device, const AttentionProblem& problem) {
  if (problem.shape.head_dim == 64)
    forward<64>(device, problem);
  else
    forward<128>(device, problem);
}

}  // namespace tetrad::cuda
