// SPDX-License-Identifier: Apache-2.0
#pragma once
// The blocks of 16 BF16 neighbours of a row-major matrix, counted row after row, as the lanes of a warp reach
// them. Lanes 2k and 2k + 1 share the blocks k and 16 + k of a batch of 32: each reads and writes its half of
// both, and holds one of them whole: the even lane the first, the odd lane the second.

#include <cstdint>

#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/quantize/nvfp4_rows.cuh"

namespace tetrad::cuda {

/// The first block of the warp's first batch, and from there to its next: the same in every lane.
__device__ inline std::uint32_t first_of_batch() {
  return (blockIdx.x * blockDim.x + threadIdx.x) / kWarp * kWarp;
}
__device__ inline std::uint32_t batch_step() { return gridDim.x * blockDim.x; }

struct RowPlace {
  std::uint32_t row, block;  //!< in the row
  bool inside;
};
struct PairOfBlocks {
  RowPlace even, odd;  //!< the blocks that the even and the odd lane of a pair hold
};
/// A lane's half of each.
struct Halves {
  uint4 even, odd;
};

class RowBlocks {
 public:
  static constexpr std::uint32_t kRegionBlocks = 8;
  static constexpr std::uint32_t kRegionBatchRows = kWarp / kRegionBlocks;

  __device__ explicit RowBlocks(const QuantProblem& p)
      : x_(static_cast<const Bf16*>(p.x)),
        stride_(p.row_stride),
        rows_(static_cast<std::uint32_t>(p.rows)),
        per_row_(static_cast<std::uint32_t>(p.cols / kGroup)),
        count_(rows_ * per_row_),
        is_odd_((threadIdx.x & 1u) != 0) {}

  __device__ std::uint32_t count() const { return count_; }

  __device__ PairOfBlocks pair_at(std::uint32_t first) const {
    const std::uint32_t mine = first + threadIdx.x % kWarp / 2;
    return {place(mine), place(mine + kWarp / 2)};
  }
  /// From one batch of the warp to the next, without a division.
  struct Step {
    std::uint32_t rows, blocks;
  };
  __device__ Step step() const {
    const std::uint32_t rows = batch_step() / max(per_row_, 1u);
    return {rows, batch_step() - rows * per_row_};
  }
  __device__ PairOfBlocks next(const PairOfBlocks& at, const Step& step) const {
    return {next(at.even, step), next(at.odd, step)};
  }

  /// In a region of 16 rows and 8 blocks instead: its batch of four rows from `row` on.
  __device__ PairOfBlocks pair_in_region(std::uint32_t row, std::uint32_t block) const {
    const std::uint32_t mine = threadIdx.x % kWarp / 2;
    const bool inside = block + mine % kRegionBlocks < per_row_;
    const RowPlace even{row + mine / kRegionBlocks, block + mine % kRegionBlocks, inside};
    return {even, {even.row + kRegionBatchRows / 2, even.block, inside}};
  }
  __device__ RowPlace own(const PairOfBlocks& at) const {
    return {is_odd_ ? at.odd.row : at.even.row, is_odd_ ? at.odd.block : at.even.block,
            is_odd_ ? at.odd.inside : at.even.inside};
  }

  /// Zeros outside the matrix.
  __device__ Halves load(const PairOfBlocks& at) const { return {load(at.even), load(at.odd)}; }

  /// From the halves that memory gave to the lane's own block.
  __device__ void exchange_halves(const Halves& halves, std::uint32_t (&own)[8]) const {
    const uint4 received = partner(choose(halves.odd, halves.even));
    put(choose(halves.even, received), own);
    put(choose(received, halves.odd), own + 4);
  }
  /// And back.
  __device__ Halves exchange_back(const std::uint32_t (&own)[8]) const {
    const uint4 low = {own[0], own[1], own[2], own[3]};
    const uint4 high = {own[4], own[5], own[6], own[7]};
    const uint4 received = partner(choose(high, low));
    return {choose(low, received), choose(received, high)};
  }

  /// Into a matrix [rows, cols] without gaps.
  __device__ void store(const PairOfBlocks& at, const Halves& halves, uint4* out) const {
    if (at.even.inside) out[vector_of(at.even)] = halves.even;
    if (at.odd.inside) out[vector_of(at.odd)] = halves.odd;
  }

 private:
  __device__ RowPlace place(std::uint32_t index) const {
    const std::uint32_t row = index / max(per_row_, 1u);
    return {row, index - row * per_row_, index < count_};
  }
  __device__ RowPlace next(const RowPlace& at, const Step& step) const {
    const std::uint32_t block = at.block + step.blocks;
    const bool wraps = block >= per_row_;
    const std::uint32_t row = at.row + step.rows + (wraps ? 1u : 0u);
    return {row, wraps ? block - per_row_ : block, row < rows_};
  }
  __device__ uint4 load(const RowPlace& at) const {
    if (!at.inside) return {};
    const Bf16* block = x_ + at.row * stride_ + std::int64_t{at.block} * kGroup;
    return reinterpret_cast<const uint4*>(block)[is_odd_ ? 1 : 0];
  }
  __device__ std::int64_t vector_of(const RowPlace& at) const {
    return (std::int64_t{at.row} * per_row_ + at.block) * 2 + (is_odd_ ? 1 : 0);
  }
  /// By words: choosing between addresses would put both into memory.
  __device__ uint4 choose(const uint4& if_even, const uint4& if_odd) const {
    return {is_odd_ ? if_odd.x : if_even.x, is_odd_ ? if_odd.y : if_even.y, is_odd_ ? if_odd.z : if_even.z,
            is_odd_ ? if_odd.w : if_even.w};
  }
  __device__ static uint4 partner(const uint4& value) {
    return {__shfl_xor_sync(kAllLanes, value.x, 1), __shfl_xor_sync(kAllLanes, value.y, 1),
            __shfl_xor_sync(kAllLanes, value.z, 1), __shfl_xor_sync(kAllLanes, value.w, 1)};
  }
  __device__ static void put(const uint4& value, std::uint32_t* out) {
    out[0] = value.x, out[1] = value.y, out[2] = value.z, out[3] = value.w;
  }

  const Bf16* x_;
  std::int64_t stride_;
  std::uint32_t rows_, per_row_, count_;
  bool is_odd_;
};

/// Calls body(pair of blocks) for each batch of the warp, with all of its lanes.
template <typename Body>
__device__ void for_each_batch(const RowBlocks& blocks, const Body& body) {
  const RowBlocks::Step step = blocks.step();
  PairOfBlocks at = blocks.pair_at(first_of_batch());
#pragma unroll 1
  for (std::uint32_t first = first_of_batch(); first < blocks.count(); first += batch_step()) {
    body(at);
    at = blocks.next(at, step);
  }
}

/// Stores the encoded blocks of a warp's batch.
template <bool kOperand>
class RowResults {
 public:
  __device__ RowResults(const QuantProblem& p, const RowBlocks& blocks)
      : p_(p), blocks_(blocks), poisoned_(p.is_poisoned()) {}

  /// Every lane of the warp must come.
  __device__ void store(const PairOfBlocks& at, const RowBlock& block, std::uint32_t (&pairs)[8]) const {
    const RowPlace own = blocks_.own(at);
    if constexpr (kOperand) {
      store_operand(at, block, pairs);
    } else if (own.inside) {
      store_codes(own, block, pairs);
    }
  }

 private:
  __device__ void store_operand(const PairOfBlocks& at, const RowBlock& block,
                                std::uint32_t (&pairs)[8]) const {
    const float scale = poisoned_ ? std::numeric_limits<float>::quiet_NaN() : E4m3::decode(block.scale_byte);
    row_operand(block.magnitudes[0], twice(scale), pairs);
    row_operand(block.magnitudes[1], twice(scale), pairs + 4);
    blocks_.store(at, blocks_.exchange_back(pairs), static_cast<uint4*>(p_.codes));
  }

  __device__ void store_codes(const RowPlace& at, const RowBlock& block,
                              const std::uint32_t (&pairs)[8]) const {
    const std::int64_t index = at.row * p_.scale_cols + at.block;
    uint2 codes = {row_codes(block.magnitudes[0], pairs), row_codes(block.magnitudes[1], pairs + 4)};
    if (poisoned_) codes = {};
    static_cast<uint2*>(p_.codes)[index] = codes;
    static_cast<std::uint8_t*>(p_.scales)[index] =
        poisoned_ ? Nvfp4Codec::kPoison : static_cast<std::uint8_t>(block.scale_byte);
  }

  const QuantProblem& p_;
  const RowBlocks& blocks_;
  bool poisoned_;
};

/// Encodes the blocks of a warp's batch and stores the result.
template <Transform kTransform, bool kStochastic, bool kOperand, bool kChoice>
class RowEncoder {
 public:
  __device__ RowEncoder(const QuantProblem& p, const RowBlocks& blocks)
      : p_(p),
        blocks_(blocks),
        results_(p, blocks),
        tensor_(nvfp4::tensor_scale(p.tensor_amax(), p.scaling)),
        bias_(bias_of(p)) {}

  /// Every lane of the warp must come.
  __device__ void encode(const PairOfBlocks& at, const Halves& halves) const {
    const RowPlace own = blocks_.own(at);
    std::uint32_t pairs[8];
    blocks_.exchange_halves(halves, pairs);
    PhiloxWords random = {};
    if constexpr (kStochastic) random = p_.random_words(own.row, std::int64_t{own.block} * kGroup);
    const RowBlock block =
        encode_row_block<kStochastic, kTransform, kChoice>(tensor_, p_.scaling, random, bias_, pairs);
    results_.store(at, block, pairs);
  }

 private:
  const QuantProblem& p_;
  const RowBlocks& blocks_;
  RowResults<kOperand> results_;
  nvfp4::TensorScale tensor_;
  std::uint32_t bias_;
};

}  // namespace tetrad::cuda
