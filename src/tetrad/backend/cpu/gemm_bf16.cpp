// SPDX-License-Identifier: Apache-2.0
// All of b, a panel of columns of the result at a time, is packed first; then each tile of the result packs
// its rows of a, a slice of the depth at a time, so that they stay in the second-level cache, and goes over
// them in blocks that stay in registers.
//
// Panels, tiles and slices follow from the shape: the result does not depend on the number of threads.

#include "tetrad/backend/cpu/gemm_bf16.h"

#include <algorithm>

#include "tetrad/backend/cpu/bf16_kernel.h"
#include "tetrad/backend/cpu/bf16_pack.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kSlice = 512;  //!< of the depth: sums of one slice stay in registers
constexpr std::int64_t kPanelCols = 32 * kBlockCols;
constexpr std::int64_t kTileRows = 256;
constexpr std::int64_t kSmallestTileRows = 32;
constexpr std::int64_t kSmallestTileCols = 2 * kBlockCols;
constexpr std::int64_t kEnoughBf16Tiles = 8;

struct TileShape {
  std::int64_t rows, cols;
};

/// Long tiles, since each packs its rows of a anew; narrow ones only where there are few rows.
TileShape tile_shape(std::int64_t rows, std::int64_t cols) {
  TileShape tile{kTileRows, kPanelCols};
  const auto too_few = [&] {
    return ceil_div(rows, tile.rows) * ceil_div(cols, tile.cols) < kEnoughBf16Tiles;
  };
  while (too_few() && tile.rows > kSmallestTileRows) tile.rows /= 2;
  while (too_few() && tile.cols > kSmallestTileCols) tile.cols /= 2;
  return tile;
}

std::uint32_t* words(Buffer& buffer, std::int64_t count) {
  return reinterpret_cast<std::uint32_t*>(workspace(buffer, count));
}

/// Of the rows and columns of a tile; those that are not there are zero.
struct SliceScales {
  float a[kTileRows] = {};
  float b[kPanelCols] = {};
};

class Product {
 public:
  Product(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out, Accumulate accumulate)
      : a_(a),
        b_(b),
        out_(out),
        depth_(a.cols()),
        scaled_(has_slice_scales(a) || has_slice_scales(b)),
        slice_(scaled_ ? kScaledDepth : kSlice),
        alpha_(gemm_alpha(a, b)),
        accumulate_(accumulate) {}

  void run(Buffer& packed_b) {
    for (std::int64_t first_col = 0; first_col < out_.cols; first_col += kPanelCols) {
      const std::int64_t cols = std::min(kPanelCols, out_.cols - first_col);
      pack_panel(first_col, cols, words(packed_b, packed_words(cols, depth_)));
      const TileShape tile = tile_shape(out_.rows, cols);
      const std::int64_t across = ceil_div(cols, tile.cols);
      parallel_for(ceil_div(out_.rows, tile.rows) * across, [&](std::int64_t i) {
        const std::int64_t row = i / across * tile.rows;
        const std::int64_t col = i % across * tile.cols;
        multiply_tile(
            {row, std::min(tile.rows, out_.rows - row), first_col + col, std::min(tile.cols, cols - col)},
            packed_b.as<std::uint32_t>() + col * packed_pairs(depth_));
      });
    }
  }

 private:
  void pack_panel(std::int64_t first_col, std::int64_t cols, std::uint32_t* out) const {
    constexpr std::int64_t kElements = 1 << 15;
    const std::int64_t piece =
        kStrip * std::max<std::int64_t>(1, kElements / (kStrip * std::max<std::int64_t>(1, depth_)));
    parallel_for(ceil_div(cols, piece), [&](std::int64_t i) {
      const std::int64_t col = i * piece;
      pack_bf16(b_, {first_col + col, std::min(piece, cols - col), 0, depth_},
                out + col * packed_pairs(depth_));
    });
  }

  /// `b` are the packed columns of the tile, over the whole depth.
  void multiply_tile(const Rectangle& tile, const std::uint32_t* b) const {
    thread_local Buffer buffer_a;
    thread_local Buffer buffer_sums;
    std::uint32_t* packed_a = words(buffer_a, packed_words(tile.row_count, std::min(slice_, depth_)));
    const std::int64_t blocks = ceil_div(tile.row_count, kBlockRows) * ceil_div(tile.col_count, kBlockCols);
    float* all_sums = workspace(buffer_sums, kBlockSize * (depth_ <= slice_ ? 1 : blocks));
    SliceScales scales;

    std::int64_t k = 0;
    do {
      const std::int64_t slice = std::min(slice_, depth_ - k);
      pack_bf16(a_, {tile.first_row, tile.row_count, k, slice}, packed_a);
      if (scaled_) {
        slice_scales(a_, tile.first_row, tile.row_count, k, scales.a);
        slice_scales(b_, tile.first_col, tile.col_count, k, scales.b);
      }
      float* sums = all_sums;
      for (std::int64_t col = 0; col < tile.col_count;) {
        const std::int64_t strips = strips_of_block(ceil_div(tile.col_count - col, kStrip));
        for (std::int64_t row = 0; row < tile.row_count; row += kBlockRows) {
          const std::int64_t strip = row / kStrip * kStrip * packed_pairs(slice) + row % kStrip;
          const Bf16Block block{packed_a + strip, b + col * packed_pairs(depth_) + k / 2 * kStrip,
                                kStrip * packed_pairs(depth_), strips, ceil_div(slice, 2)};
          if (scaled_)
            add_scaled(block, scales.a + row, scales.b + col, k > 0, sums);
          else
            multiply_bf16(block, k > 0, sums);
          if (k + slice == depth_)
            finish({tile.first_row + row, std::min(kBlockRows, tile.row_count - row), tile.first_col + col,
                    std::min(strips * kStrip, tile.col_count - col)},
                   sums);
          if (depth_ > slice_) sums += kBlockSize;
        }
        col += strips * kStrip;
      }
      k += slice;
    } while (k < depth_);
  }

  /// multiply_bf16(), where rows and columns of the block's sums have factors.
  static void add_scaled(const Bf16Block& block, const float* row_scales, const float* col_scales, bool add,
                         float* sums) {
    float part[kBlockSize];
    multiply_bf16(block, false, part);
    for (std::int64_t r = 0; r < kBlockRows; ++r)
      for (std::int64_t s = 0; s < block.strips; ++s) {
        const std::int64_t at = r * kBlockCols + s * kStrip;
        const F32x16 scaled = load_lanes(part + at) * row_scales[r] * load_lanes(col_scales + s * kStrip);
        store_lanes(add ? load_lanes(sums + at) + scaled : scaled, sums + at);
      }
  }

  /// Two blocks of two rather than one of three and one of one.
  static std::int64_t strips_of_block(std::int64_t left) {
    return left == kBlockStrips + 1 ? 2 : std::min(left, kBlockStrips);
  }

  void finish(const Rectangle& block, const float* sums) const {
    const std::int64_t at = block.first_row * out_.row_stride + block.first_col;
    for (std::int64_t r = 0; r < block.row_count; ++r, sums += kBlockCols) {
      if (out_.dtype == DType::bf16)
        finish_row(sums, block.col_count, static_cast<Bf16*>(out_.data) + at + r * out_.row_stride);
      else
        finish_row(sums, block.col_count, static_cast<float*>(out_.data) + at + r * out_.row_stride);
    }
  }

  void finish_row(const float* sums, std::int64_t count, Bf16* out) const {
    std::int64_t c = 0;
    for (; c + kStrip <= count; c += kStrip) store_lanes(load_lanes(sums + c) * alpha_, out + c);
    for (; c < count; ++c) out[c] = Bf16::from_f32(sums[c] * alpha_);
  }
  void finish_row(const float* sums, std::int64_t count, float* out) const {
    if (accumulate_ == Accumulate::yes)
      for (std::int64_t c = 0; c < count; ++c) out[c] += sums[c] * alpha_;
    else
      for (std::int64_t c = 0; c < count; ++c) out[c] = sums[c] * alpha_;
  }

  const GemmOperand& a_;
  const GemmOperand& b_;
  MutableMatrixView out_;
  std::int64_t depth_;
  bool scaled_;  //!< the sums of a slice are to be multiplied by the operands' slice_scales()
  std::int64_t slice_;
  float alpha_;
  Accumulate accumulate_;
};

}  // namespace

bool is_for_gemm_bf16(const GemmOperand& a, const GemmOperand& b) {
  return has_bf16_kernel() && is_packable(a) && is_packable(b);
}

void gemm_bf16(const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
               Accumulate accumulate) {
  thread_local Buffer packed_b;
  Product(a, b, out, accumulate).run(packed_b);
}

}  // namespace tetrad::cpu
