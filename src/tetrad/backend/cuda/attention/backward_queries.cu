// SPDX-License-Identifier: Apache-2.0
// dq: like the forward pass, with the gradients of scores in the place of probabilities.

#include "tetrad/backend/cuda/attention/backward.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

/// How a block cuts its work.
template <int kDim, bool kWarpgroups>
struct Cut {
  using Engine = WarpEngine<2>;
  static constexpr int kQueries = 128;
  static constexpr int kKeys = kDim == 64 ? 64 : 32;  //!< copied together
  static constexpr int kStep = 32;                    //!< how many are in registers at a time
  static constexpr int kBlocks = kDim == 64 ? 3 : 2;  //!< that are to fit a multiprocessor
};
template <int kDim>
struct Cut<kDim, true> {
  using Engine = WarpgroupEngine;
  static constexpr int kQueries = kDim == 64 ? 128 : 192;
  static constexpr int kKeys = 64;
  static constexpr int kStep = 64;
  static constexpr int kBlocks = kDim == 64 ? 2 : 1;
};

template <int kDim, bool kWarpgroups>
struct Sizes : Cut<kDim, kWarpgroups> {
  using Base = Cut<kDim, kWarpgroups>;
  using QueryTile = Tile<kDim, Base::kQueries>;
  using KeyTile = Tile<kDim, Base::kKeys>;
  static constexpr int kThreads = Base::kQueries / Base::Engine::kRows * Base::Engine::kGroup;
  static constexpr unsigned kBytes = 2 * QueryTile::kBytes + 4 * KeyTile::kBytes;
  static_assert(kWarpgroups || kBytes <= kSharedOfEveryGpu);
};

template <bool kMasked, bool kDocuments, int kM, int kN>
__device__ inline void exponentiate(float (&scores)[kM][kN][4], float scale,
                                    const float (&log_sum_exp)[2 * kM], const int (&starts)[2 * kM],
                                    int query, int key) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = 2 * m + e / 2;
        float& p = scores[m][n][e];
        p = exp2_fast(p * scale - log_sum_exp[i]);
        const int own_key = key + 8 * n + lane % 4 * 2 + e % 2;
        if (kMasked && own_key > query + 8 * i + lane / 4) p = 0;
        if (kDocuments && own_key < starts[i]) p = 0;
      }
}

/// From scores [queries, keys] to probabilities. Row i of a lane is row g + 8i of the warp; its log_sum_exp
/// is in units of log 2. `query` and `key` are the first ones' positions, `starts` those of the rows'
/// documents.
template <bool kDocuments, int kM, int kN>
__device__ inline void find_probabilities(float (&scores)[kM][kN][4], float scale,
                                          const float (&log_sum_exp)[2 * kM], const int (&starts)[2 * kM],
                                          int query, int key) {
  if (key + 8 * kN - 1 > query)
    exponentiate<true, kDocuments>(scores, scale, log_sum_exp, starts, query, key);
  else
    exponentiate<false, kDocuments>(scores, scale, log_sum_exp, starts, query, key);
}

/// From gradients of probabilities to those of scores.
template <int kM, int kN>
__device__ inline void differentiate(const float (&probabilities)[kM][kN][4], float (&ds)[kM][kN][4],
                                     const float (&delta)[2 * kM]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[m][n][e] = probabilities[m][n][e] * (ds[m][n][e] - delta[2 * m + e / 2]);
}

/// What a lane holds of its rows: log_sum_exp in units of log 2, and delta. Zeros serve rows that do not
/// exist.
template <int kM>
__device__ inline void load_numbers(const BackwardParameters& p, std::int64_t pair, int query,
                                    float (&log_sum_exp)[2 * kM], float (&delta)[2 * kM]) {
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int position = query + 8 * i + lane_index() / 4;
    const bool exists = position < p.sequence;
    log_sum_exp[i] = exists ? p.log_sum_exp[pair * p.sequence + position] * kLog2E : 0;
    delta[i] = exists ? p.delta[pair * p.sequence + position] : 0;
  }
}

template <int kDim, bool kWarpgroups, bool kDocuments>
__global__ void __launch_bounds__(Sizes<kDim, kWarpgroups>::kThreads, Sizes<kDim, kWarpgroups>::kBlocks)
    queries_kernel(BackwardParameters p) {
  using Size = Sizes<kDim, kWarpgroups>;
  using Engine = typename Size::Engine;
  using QueryTile = typename Size::QueryTile;
  using KeyTile = typename Size::KeyTile;
  constexpr int kM = Engine::kM;
  constexpr int kN = Size::kStep / 8;
  unsigned char* const shared = shared_memory();
  const unsigned q_tile = shared_address(shared);
  const unsigned dout_tile = q_tile + QueryTile::kBytes;
  const unsigned stages = dout_tile + QueryTile::kBytes;  // keys, values; and again for the next ones

  const std::int64_t pair = blockIdx.x % p.pairs;
  const std::int64_t col = pair % p.heads * kDim;
  const std::int64_t kv_col = pair % p.heads / p.group * kDim;
  const int blocks = (p.sequence + Size::kQueries - 1) / Size::kQueries;
  const int first = (blocks - 1 - static_cast<int>(blockIdx.x) / p.pairs) * Size::kQueries;  // longest first
  const std::int64_t row = pair / p.heads * p.sequence;  // the sequence's first
  const auto copy_keys = [&](int tile) {
    const unsigned to = stages + tile % 2 * 2 * KeyTile::kBytes;
    const int key = tile * Size::kKeys;
    copy_tile<KeyTile, Size::kThreads>(to, p.k.row(row + key) + kv_col, p.k.stride, p.sequence - key);
    copy_tile<KeyTile, Size::kThreads>(to + KeyTile::kBytes, p.v.row(row + key) + kv_col, p.v.stride,
                                       p.sequence - key);
  };
  copy_tile<QueryTile, Size::kThreads>(q_tile, p.q.row(row + first) + col, p.q.stride, p.sequence - first);
  copy_tile<QueryTile, Size::kThreads>(dout_tile, p.dout.row(row + first) + col, p.dout.stride,
                                       p.sequence - first);
  const RowDocuments<kDocuments> documents(p.document_starts, pair / p.heads, p.sequence);
  const int first_tile = documents.start(first) / Size::kKeys;
  copy_keys(first_tile);

  const int group_query = first + group_row<Engine>();
  const int warp_query = first + warp_row<Engine>();
  const float scale = p.scale * kLog2E;
  float log_sum_exp[2 * kM];
  float delta[2 * kM];
  load_numbers<kM>(p, pair, warp_query, log_sum_exp, delta);
  int starts[2 * kM];
  documents.template load<kM>(warp_query, starts);
  const int group_begin = documents.start(group_query);
  float dq[kM][kDim / 8][4] = {};
  const int tiles = (min(first + Size::kQueries, p.sequence) + Size::kKeys - 1) / Size::kKeys;
  for (int tile = first_tile; tile < tiles; ++tile) {
    wait_for_copies();
    Engine::publish();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_keys(tile + 1);
    if (group_query >= p.sequence) continue;
    const unsigned k_tile = stages + tile % 2 * 2 * KeyTile::kBytes;
#pragma unroll 1
    for (int step = 0; step < Size::kKeys; step += Size::kStep) {
      const int key = tile * Size::kKeys + step;
      if (key >= group_query + Engine::kRows) continue;              // all of them come after the queries
      if (kDocuments && key + Size::kStep <= group_begin) continue;  // or are of earlier documents
      float scores[kM][kN][4];
      float ds[kM][kN][4];
      Engine::begin();
      Engine::template multiply_rows<QueryTile, KeyTile>(scores, q_tile, group_row<Engine>(), k_tile, step);
      Engine::end_batch();
      Engine::template multiply_rows<QueryTile, KeyTile>(ds, dout_tile, group_row<Engine>(),
                                                         k_tile + KeyTile::kBytes, step);
      Engine::end_batch();
      Engine::template wait<1>(scores);
      find_probabilities<kDocuments>(scores, scale, log_sum_exp, starts, warp_query, key);
      Engine::template wait<0>(ds);
      differentiate(scores, ds, delta);
      Fragment left[kM][kN / 2];
      to_fragments(ds, left);
      Engine::begin(left, dq);
      Engine::template multiply_add_columns<KeyTile>(dq, left, k_tile, step);
      Engine::end_batch();
      Engine::template wait<0>(dq);
    }
  }
  __syncthreads();  // the queries' tile is free
  if (warp_query >= p.sequence) return;
  float factor[2 * kM];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) factor[i] = p.scale;
  store_rows<QueryTile, kM>(dq, factor, shared, warp_row<Engine>(), p.dq.row(row + warp_query) + col,
                            p.dq.stride, p.sequence - warp_query);
}

}  // namespace

template <int kDim, bool kWarpgroups, bool kDocuments>
void differentiate_queries(Device& device, const AttentionShape& shape, BackwardParameters p) {
  using Size = Sizes<kDim, kWarpgroups>;
  p.pairs = static_cast<int>(shape.batch * shape.heads);
  launch_with_shared(device, ceil_div(shape.sequence, Size::kQueries) * p.pairs, Size::kThreads, Size::kBytes,
                     queries_kernel<kDim, kWarpgroups, kDocuments>, p);
}
template void differentiate_queries<64, false, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<64, false, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<64, true, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<64, true, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<128, false, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<128, false, true>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<128, true, false>(Device&, const AttentionShape&, BackwardParameters);
template void differentiate_queries<128, true, true>(Device&, const AttentionShape&, BackwardParameters);

}  // namespace tetrad::cuda
