// SPDX-License-Identifier: Apache-2.0
// dk and dv: scores and their gradients are held transposed, [keys, queries], so that they are left operands
// of the sums over queries as they stand.

#include "tetrad/backend/cuda/attention/backward.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

/// How a block cuts its work.
template <int kDim, bool kWarpgroups>
struct Cut {
  using Engine = WarpEngine<kDim == 64 ? 2 : 1>;  // two sums of kDim columns leave no room for more
  static constexpr int kKeys = 128;
  static constexpr int kQueries = kDim == 64 ? 64 : 32;  //!< copied together
  static constexpr int kStep = 32;                       //!< how many are in registers at a time
  static constexpr int kBlocks = kDim == 64 ? 2 : 1;     //!< that are to fit a multiprocessor
};
template <int kDim>
struct Cut<kDim, true> {
  using Engine = WarpgroupEngine;
  static constexpr int kKeys = kDim == 64 ? 192 : 128;
  static constexpr int kQueries = 64;
  static constexpr int kStep = 64;
  static constexpr int kBlocks = 1;
};

template <int kDim, bool kWarpgroups, bool kDocuments>
struct Sizes : Cut<kDim, kWarpgroups> {
  using Base = Cut<kDim, kWarpgroups>;
  using KeyTile = Tile<kDim, Base::kKeys>;
  using QueryTile = Tile<kDim, Base::kQueries>;
  static constexpr int kThreads = Base::kKeys / Base::Engine::kRows * Base::Engine::kGroup;
  static constexpr bool kHasDocuments = kDocuments;
  /// log_sum_exp and delta of a tile, and where its queries' documents begin.
  static constexpr unsigned kNumbers = (kDocuments ? 3 : 2) * Base::kQueries * sizeof(float);
  static constexpr unsigned kBytes = 2 * KeyTile::kBytes + 4 * QueryTile::kBytes + 2 * kNumbers;
  static_assert(kThreads >= 2 * Base::kQueries && Base::kKeys % Base::kQueries == 0);
  static_assert(kWarpgroups || kBytes <= kSharedOfEveryGpu);
};

/// What a block owns, and where the tiles of queries that it walks over come from: those at or after its
/// keys, up to the last that sees one of them, for each head of the group.
template <typename Size>
struct Walk {
  using QueryTile = typename Size::QueryTile;
  const BackwardParameters& p;
  std::int64_t batch;
  int kv_head;
  int first;  //!< key
  int tiles;  //!< tiles of queries that one head has

  __device__ explicit Walk(const BackwardParameters& parameters) : p(parameters) {
    const int pair = static_cast<int>(blockIdx.x) % p.pairs;
    batch = pair / p.kv_heads;
    kv_head = pair % p.kv_heads;
    first = static_cast<int>(blockIdx.x) / p.pairs * Size::kKeys;  // the first keys have the most queries
    tiles = (p.sequence + Size::kQueries - 1) / Size::kQueries - first / Size::kQueries;
    if constexpr (Size::kHasDocuments) tiles = tiles_before_later_documents();
  }
  /// Tiles up to the first whose queries are all of documents that begin after the keys: starts only grow.
  __device__ int tiles_before_later_documents() const {
    const RowDocuments<true> documents(p.document_starts, batch, p.sequence);
    int some = 1;  // the first tile has the keys' own queries
    int all = tiles;
    while (some < all) {
      const int middle = (some + all) / 2;
      if (documents.start(first + middle * Size::kQueries) >= first + Size::kKeys)
        all = middle;
      else
        some = middle + 1;
    }
    return some;
  }
  __device__ int steps() const { return tiles * p.group; }
  __device__ int query(int index) const { return first + index % tiles * Size::kQueries; }

  /// Queries and dout, then log_sum_exp and delta of them, then where their documents begin.
  __device__ void copy(int index, unsigned tile, unsigned numbers) const {
    const std::int64_t head = kv_head * p.group + index / tiles;
    const std::int64_t row = batch * p.sequence + query(index);
    const int count = p.sequence - query(index);
    copy_tile<QueryTile, Size::kThreads>(tile, p.q.row(row) + head * QueryTile::kDim, p.q.stride, count);
    copy_tile<QueryTile, Size::kThreads>(tile + QueryTile::kBytes, p.dout.row(row) + head * QueryTile::kDim,
                                         p.dout.stride, count);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= 2 * Size::kQueries) return;
    const int i = thread % Size::kQueries;
    const float* from = (thread < Size::kQueries ? p.log_sum_exp : p.delta) +
                        (batch * p.heads + head) * p.sequence + query(index);
    copy_async<4>(numbers + static_cast<unsigned>(thread) * 4, from + (i < count ? i : 0), i < count);
    if (!Size::kHasDocuments || thread >= Size::kQueries) return;
    copy_async<4>(numbers + static_cast<unsigned>(2 * Size::kQueries + thread) * 4,
                  p.document_starts + row + (i < count ? i : 0), i < count);
  }
};

template <bool kMasked, bool kDocuments, int kM, int kN>
__device__ inline void exponentiate(float (&scores)[kM][kN][4], float scale, const float* log_sum_exp,
                                    const int* starts, int key, int query) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int col = 8 * n + lane % 4 * 2 + c;
      const float offset = log_sum_exp[col] * kLog2E;
      const int start = kDocuments ? starts[col] : 0;
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i) {
        float& p = scores[i / 2][n][i % 2 * 2 + c];
        p = exp2_fast(p * scale - offset);
        const int own_key = key + 8 * i + lane / 4;
        if (kMasked && own_key > query + col) p = 0;
        if (kDocuments && own_key < start) p = 0;
      }
    }
}

/// From scores [keys, queries] to probabilities. `key` and `query` are the first ones' positions, `starts`
/// those of the queries' documents.
template <bool kDocuments, int kM, int kN>
__device__ inline void find_probabilities(float (&scores)[kM][kN][4], float scale, const float* log_sum_exp,
                                          const int* starts, int key, int query) {
  if (query < key + 16 * kM)
    exponentiate<true, kDocuments>(scores, scale, log_sum_exp, starts, key, query);
  else
    exponentiate<false, kDocuments>(scores, scale, log_sum_exp, starts, key, query);
}

/// From gradients of probabilities to those of scores.
template <int kM, int kN>
__device__ inline void differentiate(const float (&probabilities)[kM][kN][4], float (&ds)[kM][kN][4],
                                     const float* delta) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float shift = delta[8 * n + lane_index() % 4 * 2 + c];
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i) {
        float& gradient = ds[i / 2][n][i % 2 * 2 + c];
        gradient = probabilities[i / 2][n][i % 2 * 2 + c] * (gradient - shift);
      }
    }
}

template <int kDim, bool kWarpgroups, bool kDocuments>
__global__ void __launch_bounds__(Sizes<kDim, kWarpgroups, kDocuments>::kThreads,
                                  Sizes<kDim, kWarpgroups, kDocuments>::kBlocks)
    keys_kernel(BackwardParameters p) {
  using Size = Sizes<kDim, kWarpgroups, kDocuments>;
  using Engine = typename Size::Engine;
  using KeyTile = typename Size::KeyTile;
  using QueryTile = typename Size::QueryTile;
  constexpr int kM = Engine::kM;
  constexpr int kN = Size::kStep / 8;
  unsigned char* const shared = shared_memory();
  unsigned char* const numbers = shared + 2 * KeyTile::kBytes + 4 * QueryTile::kBytes;
  const unsigned k_tile = shared_address(shared);
  const unsigned v_tile = k_tile + KeyTile::kBytes;
  const unsigned stages = v_tile + KeyTile::kBytes;  // queries, dout; and again for the next ones

  const Walk<Size> walk(p);
  const std::int64_t row = walk.batch * p.sequence;
  const std::int64_t col = walk.kv_head * kDim;
  const auto copy_queries = [&](int index) {
    walk.copy(index, stages + index % 2 * 2 * QueryTile::kBytes,
              shared_address(numbers) + index % 2 * Size::kNumbers);
  };
  copy_tile<KeyTile, Size::kThreads>(k_tile, p.k.row(row + walk.first) + col, p.k.stride,
                                     p.sequence - walk.first);
  copy_tile<KeyTile, Size::kThreads>(v_tile, p.v.row(row + walk.first) + col, p.v.stride,
                                     p.sequence - walk.first);
  copy_queries(0);

  const int group_key = walk.first + group_row<Engine>();
  const int warp_key = walk.first + warp_row<Engine>();
  const float scale = p.scale * kLog2E;
  float dk[kM][kDim / 8][4] = {};
  float dv[kM][kDim / 8][4] = {};
  for (int index = 0; index < walk.steps(); ++index) {
    wait_for_copies();
    Engine::publish();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (index + 1 < walk.steps()) copy_queries(index + 1);
    if (group_key >= p.sequence) continue;
    const unsigned q_tile = stages + index % 2 * 2 * QueryTile::kBytes;
    const unsigned dout_tile = q_tile + QueryTile::kBytes;
#pragma unroll 1
    for (int step = 0; step < Size::kQueries; step += Size::kStep) {
      const int query = walk.query(index) + step;
      if (query + Size::kStep <= group_key) continue;  // all of them come before the keys
      const float* const log_sum_exp = reinterpret_cast<float*>(numbers + index % 2 * Size::kNumbers) + step;
      const float* const delta = log_sum_exp + Size::kQueries;
      const auto* const starts = reinterpret_cast<const int*>(delta + Size::kQueries);
      if (kDocuments && starts[0] >= group_key + Engine::kRows) continue;  // or are of later documents
      float scores[kM][kN][4];
      float ds[kM][kN][4];
      Engine::begin();
      Engine::template multiply_rows<KeyTile, QueryTile>(scores, k_tile, group_row<Engine>(), q_tile, step);
      Engine::end_batch();
      Engine::template multiply_rows<KeyTile, QueryTile>(ds, v_tile, group_row<Engine>(), dout_tile, step);
      Engine::end_batch();
      Engine::template wait<1>(scores);
      find_probabilities<kDocuments>(scores, scale, log_sum_exp, starts, warp_key, query);
      Fragment p_left[kM][kN / 2];
      to_fragments(scores, p_left);
      Engine::template wait<0>(ds);
      differentiate(scores, ds, delta);
      Fragment ds_left[kM][kN / 2];
      to_fragments(ds, ds_left);
      Engine::begin(p_left, ds_left, dk, dv);
      Engine::template multiply_add_columns<QueryTile>(dv, p_left, dout_tile, step);
      Engine::template multiply_add_columns<QueryTile>(dk, ds_left, q_tile, step);
      Engine::end_batch();
      Engine::template wait<0>(dk, dv);
    }
  }
  __syncthreads();  // the keys' tile is free
  if (warp_key >= p.sequence) return;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = 1;
  store_rows<KeyTile, kM>(dv, factor, shared, warp_row<Engine>(), p.dv.row(row + warp_key) + col, p.dv.stride,
                          p.sequence - warp_key);
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = p.scale;
  store_rows<KeyTile, kM>(dk, factor, shared, warp_row<Engine>(), p.dk.row(row + warp_key) + col, p.dk.stride,
                          p.sequence - warp_key);
}

}  // namespace

template <int kDim, bool kWarpgroups, bool kDocuments>
void differentiate_keys(Device& device, const AttentionShape& shape, BackwardParameters p) {
  using Size = Sizes<kDim, kWarpgroups, kDocuments>;
  p.pairs = static_cast<int>(shape.batch * shape.kv_heads);
  launch_with_shared(device, ceil_div(shape.sequence, Size::kKeys) * p.pairs, Size::kThreads, Size::kBytes,
                     keys_kernel<kDim, kWarpgroups, kDocuments>, p);
}
template void differentiate_keys<64, false, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<64, false, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<64, true, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<64, true, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<128, false, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<128, false, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<128, true, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_keys<128, true, true>(Device&, const AttentionShape&, BackwardParameters);

}  // namespace tetrad::cuda
