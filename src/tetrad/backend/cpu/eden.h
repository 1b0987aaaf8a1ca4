// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 scales of MS-EDEN: one rotated group in every lane of a tile.

#include <cstdint>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/tile.h"
#include "tetrad/numerics/eden.h"

namespace tetrad::cpu {

/// A block in every lane: the scale that its codes are found with, and what its elements add up to, one after
/// another. (Not inlined: within the encoder's loop compilers vectorise it less well.)
struct LaneProjection {
  alignas(64) std::uint32_t byte[kLanes];
  F32x16 square = {};
  F32x16 product = {};

  LaneProjection() = default;
  [[gnu::noinline]] LaneProjection(const Tile& tile, int first, const float (&amax)[kLanes],
                                   const nvfp4::TensorScale& tensor) {
    alignas(64) float encode[kLanes];
    alignas(64) float value[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const nvfp4::BlockScale scale = nvfp4::block_scale(amax[lane], tensor);
      byte[lane] = scale.byte;
      encode[lane] = scale.encode;
      value[lane] = E4m3::decode(scale.byte);
    }
    TETRAD_UNROLL
    for (int i = first; i < first + nvfp4::kBlock; ++i) {
      alignas(64) float squares[kLanes];
      alignas(64) float products[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
        const nvfp4::Projection element =
            nvfp4::projection(tile.value[i][lane], encode[lane], value[lane], tensor);
        squares[lane] = element.square;
        products[lane] = element.product;
      }
      square += load_lanes(squares);
      product += load_lanes(products);
    }
  }
};

/// The scales that are stored for the blocks of a tile, whose runs are rotated groups.
struct CorrectedScales {
  static constexpr int kMostBlocks = kMaxRun / nvfp4::kBlock;
  alignas(64) std::uint32_t byte[kMostBlocks][kLanes];

  /// amax_of(first, amax) gathers the maxima of the blocks at `first`; lane l's run begins with block first +
  /// l * step of the tensor.
  template <typename AmaxOf>
  void find(const Tile& tile, const nvfp4::TensorScale& tensor, const AmaxOf& amax_of,
            const RandomStream& stream, std::uint32_t first, std::uint32_t step) {
    const int blocks = tile.length / nvfp4::kBlock;
    LaneProjection projections[kMostBlocks];
    for (int b = 0; b < blocks; ++b) {
      alignas(64) float amax[kLanes];
      amax_of(b * nvfp4::kBlock, amax);
      projections[b] = LaneProjection(tile, b * nvfp4::kBlock, amax, tensor);
    }
    std::uint32_t random[kMostBlocks][kLanes] = {};
    for (int lane = 0; lane < tile.lanes; ++lane) {
      std::uint32_t number = first + static_cast<std::uint32_t>(lane) * step;
      PhiloxWords words = {};
      for (int b = 0; b < blocks; ++b, ++number) {
        if (b == 0 || number % RandomStream::kGroup == 0) words = stream.group(number / RandomStream::kGroup);
        random[b][lane] = nvfp4::random_byte_of_block(words, number);
      }
    }
    correct(projections, blocks, random);
  }

 private:
  /// `random` is (block, lane)'s random byte.
  void correct(LaneProjection (&block)[kMostBlocks], int blocks,
               const std::uint32_t (&random)[kMostBlocks][kLanes]) {
    for (int b = 0; b < blocks; ++b)
      for (int lane = 0; lane < kLanes; ++lane) byte[b][lane] = block[b].byte[lane];
    for (int step = 1; step < blocks; step *= 2)  // neighbours, then neighbouring pairs, …
      for (int b = 0; b < blocks; b += 2 * step) {
        block[b].square += block[b + step].square;
        block[b].product += block[b + step].product;
      }
    alignas(64) float square[kLanes];
    alignas(64) float product[kLanes];
    alignas(64) float correction[kLanes];
    store_lanes(block[0].square, square);
    store_lanes(block[0].product, product);
    for (int lane = 0; lane < kLanes; ++lane)
      correction[lane] = nvfp4::correction({square[lane], product[lane]});
    for (int b = 0; b < blocks; ++b)
      for (int lane = 0; lane < kLanes; ++lane)
        byte[b][lane] = nvfp4::corrected_byte(byte[b][lane], correction[lane], random[b][lane]);
  }
};

}  // namespace tetrad::cpu
