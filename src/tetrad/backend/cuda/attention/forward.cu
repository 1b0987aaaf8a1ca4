// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores, forward and decode of many tokens. A block has 128 queries of one head, each of
// its groups (a warp or four) some of them; it walks over tiles of keys while the next tile is on its way.

#include "tetrad/backend/cuda/attention/engine.cuh"
#include "tetrad/backend/cuda/attention/kernels.h"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

/// How a block cuts its work.
template <int kDim, bool kWarpgroups>
struct Cut {
  using Engine = WarpEngine<2>;
  static constexpr int kQueries = 128;
  static constexpr int kKeys = 64;
  static constexpr int kBlocks = kDim == 64 ? 3 : 2;  //!< that are to fit a multiprocessor
};
template <int kDim>
struct Cut<kDim, true> {
  using Engine = WarpgroupEngine;
  static constexpr int kQueries = 128;
  static constexpr int kKeys = kDim == 64 ? 64 : 128;
  static constexpr int kBlocks = kDim == 64 ? 2 : 1;
};

template <int kDim, bool kWarpgroups>
struct Sizes : Cut<kDim, kWarpgroups> {
  using Base = Cut<kDim, kWarpgroups>;
  using QueryTile = Tile<kDim, Base::kQueries>;
  using KeyTile = Tile<kDim, Base::kKeys>;
  static constexpr int kThreads = Base::kQueries / Base::Engine::kRows * Base::Engine::kGroup;
  static constexpr unsigned kBytes = QueryTile::kBytes + 4 * KeyTile::kBytes;
  static_assert(kWarpgroups || kBytes <= kSharedOfEveryGpu);
};

struct Parameters {
  int sequence, cached;
  int heads, group;  //!< query heads: all, and those of one key/value head
  int pairs;         //!< batch * heads
  int tiles;         //!< tiles of queries
  float scale;
  View<const Bf16> q, k, v;
  View<Bf16> out;
  float* log_sum_exp;
  const std::int32_t* document_starts;
};

/// The running softmax of a lane's rows, in units of log 2. Row i is row g + 8i of the warp.
template <int kM>
struct Softmax {
  float largest[2 * kM];  //!< score, which the exponents are relative to
  float sum[2 * kM];      //!< over the lane's own columns

  /// Where a row has seen no key of its document yet, any finite number makes zeros of minus infinity.
  template <bool kDocuments>
  __device__ float reference(int i) const {
    return kDocuments && largest[i] == -INFINITY ? 0.0f : largest[i];
  }
};

/// Scores become probabilities relative to the largest so far; earlier sums and results are scaled to it,
/// unless no row of the warp has a larger one.
template <bool kDocuments, int kM, int kN, int kOut>
__device__ inline void update_softmax(float (&scores)[kM][kN][4], float scale, Softmax<kM>& softmax,
                                      float (&out)[kM][kOut][4]) {
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
    const bool grows = largest > softmax.largest[i];
    factor[i] = grows ? exp2_fast(softmax.largest[i] - largest) : 1.0f;
    if (grows) softmax.largest[i] = largest;
    grew |= grows;
  }
  if (__any_sync(kAllLanes, grew)) {
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      softmax.sum[i] *= factor[i];
#pragma unroll
      for (int n = 0; n < kOut; ++n) {
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
        const float p = exp2_fast(scores[m][n][e] * scale - softmax.template reference<kDocuments>(i));
        scores[m][n][e] = p;
        softmax.sum[i] += p;
      }
}

/// Keys after a query's own do not count. `query` and `key` are the first ones' positions in the sequence.
template <int kM, int kN>
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

/// Keys of earlier documents do not count, either. `starts` are those of the lane's rows.
template <int kM, int kN>
__device__ inline void mask_documents(float (&scores)[kM][kN][4], const int (&starts)[2 * kM], int key) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (key + 8 * n + lane_index() % 4 * 2 + e % 2 < starts[2 * m + e / 2]) scores[m][n][e] = -INFINITY;
}

/// Writes the results of a warp, whose rows begin at `row` of the tile and at `first` of the sequence.
template <typename QueryTile, int kM>
__device__ inline void finish(const Parameters& p, Softmax<kM>& softmax,
                              const float (&out)[kM][QueryTile::kChunks][4], unsigned char* tile, int row,
                              std::int64_t pair, int first) {
  const int count = p.sequence - first;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    softmax.sum[i] += __shfl_xor_sync(kAllLanes, softmax.sum[i], 1);
    softmax.sum[i] += __shfl_xor_sync(kAllLanes, softmax.sum[i], 2);
    factor[i] = 1 / softmax.sum[i];
    const int position = 8 * i + lane_index() / 4;
    if (p.log_sum_exp != nullptr && lane_index() % 4 == 0 && position < count)
      p.log_sum_exp[pair * p.sequence + first + position] = softmax.largest[i] * kLn2 + logf(softmax.sum[i]);
  }
  Bf16* to = p.out.row(pair / p.heads * p.sequence + first) + pair % p.heads * QueryTile::kDim;
  store_rows<QueryTile, kM>(out, factor, tile, row, to, p.out.stride, count);
}

template <int kDim, bool kWarpgroups, bool kDocuments>
__global__ void __launch_bounds__(Sizes<kDim, kWarpgroups>::kThreads, Sizes<kDim, kWarpgroups>::kBlocks)
    forward_kernel(Parameters p) {
  using Size = Sizes<kDim, kWarpgroups>;
  using Engine = typename Size::Engine;
  using QueryTile = typename Size::QueryTile;
  using KeyTile = typename Size::KeyTile;
  constexpr int kM = Engine::kM;
  constexpr int kN = Size::kKeys / 8;
  unsigned char* const shared = shared_memory();
  const unsigned q_tile = shared_address(shared);
  const unsigned kv_tiles = q_tile + QueryTile::kBytes;  // keys, values; and again for the next ones

  const std::int64_t pair = blockIdx.x % p.pairs;
  const int first = (p.tiles - 1 - static_cast<int>(blockIdx.x) / p.pairs) * Size::kQueries;  // longest first
  const std::int64_t batch = pair / p.heads;
  const std::int64_t head = pair % p.heads;
  const int keys = p.cached + p.sequence;
  const Bf16* const k = p.k.row(batch * keys) + head / p.group * kDim;
  const Bf16* const v = p.v.row(batch * keys) + head / p.group * kDim;
  const auto copy_keys = [&](int tile) {
    const unsigned to = kv_tiles + tile % 2 * 2 * KeyTile::kBytes;
    const std::int64_t row = tile * Size::kKeys;
    const int count = keys - tile * Size::kKeys;
    copy_tile<KeyTile, Size::kThreads>(to, k + row * p.k.stride, p.k.stride, count);
    copy_tile<KeyTile, Size::kThreads>(to + KeyTile::kBytes, v + row * p.v.stride, p.v.stride, count);
  };
  copy_tile<QueryTile, Size::kThreads>(q_tile, p.q.row(batch * p.sequence + first) + head * kDim, p.q.stride,
                                       p.sequence - first);
  // Documents are not for decoding: nothing is cached, and keys and queries count alike.
  const RowDocuments<kDocuments> documents(p.document_starts, batch, p.sequence);
  const int first_tile = documents.start(first) / Size::kKeys;
  copy_keys(first_tile);

  const int position = p.cached + first;
  const int group_end =
      position + group_row<Engine>() + Engine::kRows;  // the end of the keys that the group sees
  const int warp_first = first + warp_row<Engine>();
  const bool idle = first + group_row<Engine>() >= p.sequence;
  const float scale = p.scale * kLog2E;
  Softmax<kM> softmax;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) softmax.largest[i] = -INFINITY, softmax.sum[i] = 0;
  float out[kM][kDim / 8][4] = {};
  int starts[2 * kM];
  documents.template load<kM>(warp_first, starts);
  const int group_begin = documents.start(first + group_row<Engine>());

  const int tiles = (min(position + Size::kQueries, keys) + Size::kKeys - 1) / Size::kKeys;
  for (int tile = first_tile; tile < tiles; ++tile) {
    wait_for_copies();
    Engine::publish();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    const int key = tile * Size::kKeys;
    if (idle || key >= group_end) continue;
    if (kDocuments && key + Size::kKeys <= group_begin) continue;  // all of them are of earlier documents
    const unsigned k_tile = kv_tiles + tile % 2 * 2 * KeyTile::kBytes;
    float scores[kM][kN][4];
    Engine::begin();
    Engine::template multiply_rows<QueryTile, KeyTile>(scores, q_tile, group_row<Engine>(), k_tile, 0);
    Engine::end_batch();
    Engine::template wait<0>(scores);
    if (key + Size::kKeys - 1 > p.cached + warp_first) mask(scores, p.cached + warp_first, key);
    if (kDocuments && key < starts[2 * kM - 1]) mask_documents(scores, starts, key);
    update_softmax<kDocuments>(scores, scale, softmax, out);
    Fragment probabilities[kM][kN / 2];
    to_fragments(scores, probabilities);
    Engine::begin(probabilities, out);
    Engine::template multiply_add_columns<KeyTile>(out, probabilities, k_tile + KeyTile::kBytes, 0);
    Engine::end_batch();
    Engine::template wait<0>(out);
  }
  __syncthreads();  // the queries' tile is free
  if (warp_first < p.sequence)
    finish<QueryTile>(p, softmax, out, shared, warp_row<Engine>(), pair, warp_first);
}

template <int kDim, bool kWarpgroups, bool kDocuments>
void forward(Device& device, const AttentionProblem& problem) {
  using Size = Sizes<kDim, kWarpgroups>;
  const AttentionShape& shape = problem.shape;
  Parameters p{};
  p.sequence = static_cast<int>(shape.sequence);
  p.cached = static_cast<int>(problem.cached);
  p.heads = static_cast<int>(shape.heads);
  p.group = static_cast<int>(shape.heads / shape.kv_heads);
  p.pairs = static_cast<int>(shape.batch * shape.heads);
  p.tiles = static_cast<int>(ceil_div(shape.sequence, Size::kQueries));
  p.scale = shape.scale;
  p.q = view_as<Bf16>(problem.q);
  p.k = view_as<Bf16>(problem.k);
  p.v = view_as<Bf16>(problem.v);
  p.out = view_as<Bf16>(problem.out);
  p.log_sum_exp = problem.log_sum_exp;
  p.document_starts = problem.document_starts;
  launch_with_shared(device, std::int64_t{p.tiles} * p.pairs, Size::kThreads, Size::kBytes,
                     forward_kernel<kDim, kWarpgroups, kDocuments>, p);
}

}  // namespace

void attention_on_tensor_cores(Device& device, const AttentionProblem& problem) {
  with_engine(device, problem, [&](auto dim, auto warpgroups, auto documents) {
    forward<dim, warpgroups, documents>(device, problem);
  });
}

}  // namespace tetrad::cuda
