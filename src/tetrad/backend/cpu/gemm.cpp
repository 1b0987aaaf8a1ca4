// SPDX-License-Identifier: Apache-2.0
// All of b, a panel of columns of the result at a time, is packed first; then each tile of the result packs
// its rows of a, a slice of the depth at a time, so that they stay in the second-level cache, and goes over
// them in blocks that stay in registers.
//
// Panels, tiles and slices follow from the shape, and the order of a sum from the depth alone: the result
// depends neither on the number of threads nor on the kernel, nor on the other two extents.

#include "tetrad/backend/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "tetrad/backend/cpu/kernel_bf16.h"
#include "tetrad/backend/cpu/kernel_f32.h"
#include "tetrad/backend/cpu/pack_bf16.h"
#include "tetrad/backend/cpu/pack_f32.h"
#include "tetrad/backend/cpu/simd.h"
#include "tetrad/backend/cpu/workspace.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kSlice = 512;  //!< of the depth: its sum is rounded on its own, then added
constexpr std::int64_t kPanelCols = 1536;
constexpr std::int64_t kSmallestTileRows = 32;
constexpr std::int64_t kSmallestTileCols = 96;
constexpr std::int64_t kEnoughTiles = 8;

[[maybe_unused]] void pack(const GemmOperand& operand, const Rectangle& part, std::int64_t /*strip*/,
                           std::uint32_t* out) {
  pack_bf16(operand, part, out);
}
void pack(const GemmOperand& operand, const Rectangle& part, std::int64_t strip, float* out) {
  pack_f32(operand, part, strip, out);
}

template <typename Kernel>
class Product {
  using Word = typename Kernel::Word;
  static constexpr std::int64_t kBlockCols = Kernel::kStrips * Kernel::kStripB;
  static constexpr std::int64_t kBlockSize = Kernel::kRows * kBlockCols;
  /// A slice of a tile's rows is half of a small second-level cache.
  static constexpr std::int64_t kTileRows = 256 / Kernel::kWordsPerPair;
  static_assert(kPanelCols % kBlockCols == 0 && kTileRows % Kernel::kRows == 0);

  /// Scales of the rows and columns of a tile; those that are not there are zero.
  struct SliceScales {
    float a[kTileRows] = {};
    float b[kPanelCols] = {};
  };
  struct TileShape {
    std::int64_t rows, cols;
  };

 public:
  Product(Threads& threads, const GemmOperand& a, const GemmOperand& b, const MutableMatrixView& out,
          Accumulate accumulate)
      : threads_(threads),
        packed_(is_packed_for_kernel(b) ? b.packed()->words.template as<Word>() : nullptr),
        a_(a),
        b_(b),
        out_(out),
        depth_(a.cols()),
        scaled_(has_slice_scales(a) || has_slice_scales(b)),
        slice_(scaled_ ? kScaledDepth : kSlice),
        alpha_(gemm_alpha(a, b)),
        alphas_(gemm_alphas(a, b)),
        accumulate_(accumulate) {}

  void run() {
    thread_local Buffer buffer;
    for (std::int64_t first_col = 0; first_col < out_.cols; first_col += kPanelCols) {
      const std::int64_t cols = std::min(kPanelCols, out_.cols - first_col);
      const Word* packed_b = packed_;
      if (packed_ != nullptr)
        packed_b += first_col * packed_depth(depth_);
      else
        packed_b = pack_columns(threads_, b_, first_col, cols, words(buffer, packed_size(cols, depth_)));
      const TileShape tile = tile_shape(out_.rows, cols);
      const std::int64_t across = ceil_div(cols, tile.cols);
      threads_.parallel_for(ceil_div(out_.rows, tile.rows) * across, [&](std::int64_t i) {
        const std::int64_t row = i / across * tile.rows;
        const std::int64_t col = i % across * tile.cols;
        multiply_tile(
            {row, std::min(tile.rows, out_.rows - row), first_col + col, std::min(tile.cols, cols - col)},
            packed_b + col * packed_depth(depth_));
      });
    }
  }

  /// All panels of b, one behind the other.
  static void pack_all(Threads& threads, const GemmOperand& b, PackedOperand& out) {
    out.layout = Kernel::kWordsPerPair;
    out.words = Buffer(static_cast<std::size_t>(packed_size(b.rows(), b.cols())) * sizeof(Word));
    pack_columns(threads, b, 0, b.rows(), out.words.as<Word>());
  }

 private:
  static bool is_packed_for_kernel(const GemmOperand& b) {
    return b.packed() != nullptr && b.packed()->layout == Kernel::kWordsPerPair;
  }
  static Word* words(Buffer& buffer, std::int64_t count) {
    static_assert(sizeof(Word) == sizeof(float));
    return reinterpret_cast<Word*>(workspace(buffer, count));
  }
  /// Words of a packed row.
  static std::int64_t packed_depth(std::int64_t depth) { return packed_pairs(depth) * Kernel::kWordsPerPair; }
  static std::int64_t packed_size(std::int64_t rows, std::int64_t depth) {
    return ceil_div(rows, kStrip) * kStrip * packed_depth(depth);
  }

  /// Long tiles, since each packs its rows of a anew; narrow ones only where there are few rows.
  static TileShape tile_shape(std::int64_t rows, std::int64_t cols) {
    TileShape tile{kTileRows, kPanelCols};
    const auto too_few = [&] { return ceil_div(rows, tile.rows) * ceil_div(cols, tile.cols) < kEnoughTiles; };
    while (too_few() && tile.rows > kSmallestTileRows) tile.rows /= 2;
    while (too_few() && tile.cols > kSmallestTileCols) tile.cols /= 2;
    return tile;
  }

  /// Some of the columns of the result, which are rows of b, over the whole depth.
  static const Word* pack_columns(Threads& threads, const GemmOperand& b, std::int64_t first_col,
                                  std::int64_t cols, Word* out) {
    constexpr std::int64_t kElements = 1 << 15;
    const std::int64_t depth = b.cols();
    const std::int64_t piece =
        kStrip * std::max<std::int64_t>(1, kElements / (kStrip * std::max<std::int64_t>(1, depth)));
    threads.parallel_for(ceil_div(cols, piece), [&](std::int64_t i) {
      const std::int64_t col = i * piece;
      pack(b, {first_col + col, std::min(piece, cols - col), 0, depth}, Kernel::kStripB,
           out + col * packed_depth(depth));
    });
    return out;
  }

  /// `b` are the packed columns of the tile, over the whole depth.
  void multiply_tile(const Rectangle& tile, const Word* b) const {
    thread_local Buffer buffer_a;
    thread_local Buffer buffer_part;
    thread_local Buffer buffer_sums;
    Word* a = words(buffer_a, packed_size(tile.row_count, std::min(slice_, depth_)));
    const std::int64_t blocks_down = ceil_div(tile.row_count, Kernel::kRows);
    float* part = workspace(buffer_part, kBlockSize * blocks_down);
    // Of the slices so far, where there are several.
    const std::int64_t columns_of_blocks =
        ceil_div(ceil_div(tile.col_count, Kernel::kStripB), std::min<std::int64_t>(2, Kernel::kStrips));
    float* all_sums =
        depth_ <= slice_ ? nullptr : workspace(buffer_sums, kBlockSize * blocks_down * columns_of_blocks);
    SliceScales scales;

    std::int64_t k = 0;
    do {
      const std::int64_t slice = std::min(slice_, depth_ - k);
      pack(a_, {tile.first_row, tile.row_count, k, slice}, Kernel::kStripA, a);
      if (scaled_) {
        slice_scales(a_, tile.first_row, tile.row_count, k, scales.a);
        slice_scales(b_, tile.first_col, tile.col_count, k, scales.b);
      }
      float* sums = all_sums;
      for (std::int64_t col = 0; col < tile.col_count;) {
        const std::int64_t strips = strips_of_block(ceil_div(tile.col_count - col, Kernel::kStripB));
        multiply_column(tile.row_count, a, slice,
                        b + col * packed_depth(depth_) + k / 2 * Kernel::kWordsPerPair * Kernel::kStripB,
                        strips, part);
        const std::int64_t cols = strips * Kernel::kStripB;
        if (scaled_) scale_column(tile.row_count, cols, scales.a, scales.b + col, part);
        const float* result = part;
        if (all_sums != nullptr) {
          add_column(tile.row_count, cols, k > 0, part, sums);
          result = sums;
          sums += kBlockSize * blocks_down;
        }
        if (k + slice == depth_)
          finish_column(
              {tile.first_row, tile.row_count, tile.first_col + col, std::min(cols, tile.col_count - col)},
              result);
        col += cols;
      }
      k += slice;
    } while (k < depth_);
  }

  /// A column of blocks over one slice, of which b's strips stay in the first-level cache piece by piece.
  void multiply_column(std::int64_t rows, const Word* a, std::int64_t slice, const Word* b,
                       std::int64_t strips, float* part) const {
    const std::int64_t pairs = ceil_div(slice, 2);
    constexpr std::int64_t kCachedPairs = Kernel::kCachedDepth / 2;
    std::int64_t pair = 0;
    do {
      const std::int64_t line = pair * Kernel::kWordsPerPair;
      float* sums = part;
      for (std::int64_t row = 0; row < rows; row += Kernel::kRows, sums += kBlockSize)
        Kernel::multiply({a + row / Kernel::kStripA * Kernel::kStripA * packed_depth(slice) +
                              row % Kernel::kStripA + line * Kernel::kStripA,
                          b + line * Kernel::kStripB, Kernel::kStripB * packed_depth(depth_), strips,
                          std::min(kCachedPairs, pairs - pair)},
                         pair > 0, sums);
      pair += kCachedPairs;
    } while (pair < pairs);
  }

  static void scale_column(std::int64_t rows, std::int64_t cols, const float* row_scales,
                           const float* col_scales, float* part) {
    for (std::int64_t r = 0; r < rows; ++r, part += kBlockCols)
      for (std::int64_t c = 0; c < cols; ++c) part[c] = part[c] * row_scales[r] * col_scales[c];
  }

  static void add_column(std::int64_t rows, std::int64_t cols, bool add, const float* part, float* sums) {
    for (std::int64_t r = 0; r < rows; ++r, part += kBlockCols, sums += kBlockCols)
      for (std::int64_t c = 0; c < cols; ++c) sums[c] = add ? sums[c] + part[c] : part[c];
  }

  /// Two blocks of two rather than one of three and one of one.
  static std::int64_t strips_of_block(std::int64_t left) {
    return std::min(left == Kernel::kStrips + 1 ? 2 : left, Kernel::kStrips);
  }

  void finish_column(const Rectangle& column, const float* sums) const {
    for (std::int64_t r = 0; r < column.row_count; ++r, sums += kBlockCols) {
      const std::int64_t row = column.first_row + r;
      const std::int64_t at = row * out_.row_stride + column.first_col;
      const float alpha = alphas_.empty() ? alpha_ : alphas_[static_cast<std::size_t>(row)];
      if (out_.dtype == DType::bf16)
        finish_row(sums, alpha, column.col_count, static_cast<Bf16*>(out_.data) + at);
      else
        finish_row(sums, alpha, column.col_count, static_cast<float*>(out_.data) + at);
    }
  }

  void finish_row(const float* sums, float alpha, std::int64_t count, Bf16* out) const {
    std::int64_t c = 0;
    for (; c + kStrip <= count; c += kStrip) store_lanes(load_lanes(sums + c) * alpha, out + c);
    for (; c < count; ++c) out[c] = Bf16::from_f32(sums[c] * alpha);
  }
  void finish_row(const float* sums, float alpha, std::int64_t count, float* out) const {
    if (accumulate_ == Accumulate::yes)
      for (std::int64_t c = 0; c < count; ++c) out[c] += sums[c] * alpha;
    else
      for (std::int64_t c = 0; c < count; ++c) out[c] = sums[c] * alpha;
  }

  Threads& threads_;
  const Word* packed_;  //!< all of b, if it was packed for this kernel before
  const GemmOperand& a_;
  const GemmOperand& b_;
  MutableMatrixView out_;
  std::int64_t depth_;
  bool scaled_;  //!< the sums of a slice are to be multiplied by the operands' slice_scales()
  std::int64_t slice_;
  float alpha_;
  std::vector<float> alphas_;  //!< of each row, where a is a stack
  Accumulate accumulate_;
};

}  // namespace

void gemm(Threads& threads, ProductKernel kernel, const GemmOperand& a, const GemmOperand& b,
          const MutableMatrixView& out, Accumulate accumulate) {
  check(a, b, out, accumulate);
  if constexpr (kHasBf16Kernel)
    if (kernel == ProductKernel::bf16 && is_packable(a) && is_packable(b))
      return Product<KernelBf16>(threads, a, b, out, accumulate).run();
  Product<KernelF32>(threads, a, b, out, accumulate).run();
}

void pack(Threads& threads, ProductKernel kernel, const GemmOperand& b, PackedOperand& out) {
  if constexpr (kHasBf16Kernel)
    if (kernel == ProductKernel::bf16 && is_packable(b))
      return Product<KernelBf16>::pack_all(threads, b, out);
  Product<KernelF32>::pack_all(threads, b, out);
}

}  // namespace tetrad::cpu
