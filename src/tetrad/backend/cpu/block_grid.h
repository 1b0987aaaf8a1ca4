// SPDX-License-Identifier: Apache-2.0
#pragma once
// The blocks of a matrix that share a scale, and what is known of each: its amax and the scale that was
// chosen for it.

#include <bit>
#include <utility>

#include "tetrad/backend/cpu/tile.h"
#include "tetrad/core/checked.h"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cpu {

/// Blocks are laid out in the order in which tiles visit them, so that the lanes of a tile see neighbours.
class BlockGrid {
 public:
  /// A whole-tensor scale is reduced from 1x128 blocks.
  BlockGrid(const MatrixView& x, const BlockShape& shape)
      : block_rows_(shape.is_whole() ? 1 : shape.rows),
        block_cols_(shape.is_whole() ? fp8::kBlock : shape.cols),
        rows_(ceil_div(x.rows, block_rows_)),
        cols_(ceil_div(x.cols, block_cols_)),
        by_rows_(x.is_row_major()),
        row_stride_(by_rows_ ? cols_ : 1),
        col_stride_(by_rows_ ? 1 : rows_),
        row_shift_(std::countr_zero(static_cast<std::uint64_t>(block_rows_))),
        col_shift_(std::countr_zero(static_cast<std::uint64_t>(block_cols_))) {}

  std::int64_t block_rows() const { return block_rows_; }
  std::int64_t block_cols() const { return block_cols_; }
  std::int64_t size() const { return rows_ * cols_; }
  std::int64_t block_row(std::int64_t row) const { return row >> row_shift_; }
  std::int64_t block_col(std::int64_t col) const { return col >> col_shift_; }

  std::int64_t blocks_per_row() const { return cols_; }
  /// Whether a row is the first of its blocks.
  bool is_first_row(std::int64_t row) const { return (row & (block_rows_ - 1)) == 0; }

  /// The blocks of rows [begin, end), or of columns if blocks are laid out by columns: a range.
  std::pair<std::int64_t, std::int64_t> blocks_between(std::int64_t begin, std::int64_t end) const {
    if (by_rows_) return {block_row(begin) * cols_, (block_row(end - 1) + 1) * cols_};
    return {block_col(begin) * rows_, (block_col(end - 1) + 1) * rows_};
  }

  /// The first block of a row.
  std::int64_t row(std::int64_t row) const { return block_row(row) * row_stride_; }

  /// The block of lane 0 at element `first` of its run.
  std::int64_t index(const Tile& tile, int first) const {
    return block_row(tile.row) * row_stride_ + block_col(tile.col + first) * col_stride_;
  }

  /// From one lane's block to the next lane's: 0 where neighbouring rows are in one block.
  std::int64_t stride(const LaneStep& step) const {
    return (step.rows > 0 && block_rows_ == 1 ? row_stride_ : 0) + block_col(step.cols) * col_stride_;
  }

 private:
  std::int64_t block_rows_, block_cols_;
  std::int64_t rows_, cols_;  // in blocks
  bool by_rows_;
  std::int64_t row_stride_, col_stride_;
  int row_shift_, col_shift_;  // block extents are powers of two
};

}  // namespace tetrad::cpu
