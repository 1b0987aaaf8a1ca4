// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tile of 128x128 bytes on its way from rows to columns, in shared memory: 256 threads bring squares of
// 8x8 and take whole columns. (Nothing here knows of threads but by their number: tests call it without a
// device.)

#include <cstdint>

#include "tetrad/backend/cuda/common/words.h"

namespace tetrad::cuda {

inline constexpr int kTile = 128;
inline constexpr int kSquare = 8;
inline constexpr int kSquares = kTile / kSquare;  //!< in each row and column of the tile
inline constexpr int kTileThreads = kSquares * kSquares;

class TransposedTile {
 public:
  /// The eight bytes of a column in row `square_row` of squares. Where they lie keeps them in different banks
  /// for neighbouring squares of a row as well as for neighbouring parts of a column.
  TETRAD_HD TwoWords& part(int column, int square_row) {
    return parts_[column][square_row ^ (column / kSquare)];
  }
  TETRAD_HD const TwoWords& part(int column, int square_row) const {
    return parts_[column][square_row ^ (column / kSquare)];
  }

  /// A thread's share of the tile at (row, col) of a matrix [rows, cols] into `out`, [cols, rows]. Rows are a
  /// multiple of 8.
  TETRAD_HD void store(int thread, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols,
                       std::uint8_t* out) const {
    const int square_row = thread % kSquares;
    row += square_row * kSquare;
    if (row >= rows) return;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kTile / kSquares; ++i) {
      const int column = i * kSquares + thread / kSquares;
      if (col + column < cols)
        *reinterpret_cast<TwoWords*>(out + (col + column) * rows + row) = part(column, square_row);
    }
  }

 private:
  TwoWords parts_[kTile][kSquares];
};

/// Words of four rows to words of four columns.
TETRAD_HD inline FourWords transposed_bytes(const FourWords& rows) {
  const std::uint32_t even_low =
      byte_perm(rows.word[0], rows.word[1], 0x5140u);  // columns 0 and 1, rows 0 and 1
  const std::uint32_t odd_low = byte_perm(rows.word[2], rows.word[3], 0x5140u);  // rows 2 and 3
  const std::uint32_t even_high = byte_perm(rows.word[0], rows.word[1], 0x7362u);
  const std::uint32_t odd_high = byte_perm(rows.word[2], rows.word[3], 0x7362u);
  return {{byte_perm(even_low, odd_low, 0x5410u), byte_perm(even_low, odd_low, 0x7632u),
           byte_perm(even_high, odd_high, 0x5410u), byte_perm(even_high, odd_high, 0x7632u)}};
}

/// The square of bytes of eight lines, to `tile`.
TETRAD_HD inline void transpose_square(const TwoWords (&lines)[kSquare], int square_row, int square_col,
                                       TransposedTile& tile) {
  TETRAD_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half) {
    const auto transposed = [&](int first) {
      return transposed_bytes({{lines[first].word[half], lines[first + 1].word[half],
                                lines[first + 2].word[half], lines[first + 3].word[half]}});
    };
    const FourWords upper = transposed(0);
    const FourWords lower = transposed(4);
    TETRAD_UNROLL_ON_DEVICE
    for (int c = 0; c < 4; ++c)
      tile.part(square_col * kSquare + 4 * half + c, square_row) = {{upper.word[c], lower.word[c]}};
  }
}

/// Brings a thread's square of a matrix of bytes [rows, cols], both multiples of 8, to `tile`. line_at(row,
/// col) are eight of its bytes.
template <typename LineAt>
TETRAD_HD inline void transpose_square_of(std::int64_t rows, std::int64_t cols, std::int64_t row,
                                          std::int64_t col, int thread, TransposedTile& tile,
                                          const LineAt& line_at) {
  const int square_row = thread / kSquares;
  const int square_col = thread % kSquares;
  row += square_row * kSquare;
  col += square_col * kSquare;
  if (row >= rows || col >= cols) return;
  TwoWords lines[kSquare];
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kSquare; ++r) lines[r] = line_at(row + r, col);
  transpose_square(lines, square_row, square_col, tile);
}

TETRAD_HD inline void transpose_square_of_bytes(const std::uint8_t* in, std::int64_t rows, std::int64_t cols,
                                                std::int64_t row, std::int64_t col, int thread,
                                                TransposedTile& tile) {
  transpose_square_of(rows, cols, row, col, thread, tile, [&](std::int64_t r, std::int64_t c) {
    return *reinterpret_cast<const TwoWords*>(in + r * cols + c);
  });
}

/// The same of four-bit codes [2 rows, cols], packed in pairs along their rows: the matrix of bytes has the
/// pairs down their columns.
TETRAD_HD inline void transpose_square_of_packed_rows(const std::uint8_t* in, std::int64_t rows,
                                                      std::int64_t cols, std::int64_t row, std::int64_t col,
                                                      int thread, TransposedTile& tile) {
  constexpr std::uint32_t kEven = 0x0F0F0F0Fu;
  transpose_square_of(rows, cols, row, col, thread, tile, [&](std::int64_t r, std::int64_t c) {
    const std::uint8_t* first = in + r * cols + c / 2;  // two rows of codes, cols / 2 bytes each
    const std::uint32_t upper = *reinterpret_cast<const std::uint32_t*>(first);
    const std::uint32_t lower = *reinterpret_cast<const std::uint32_t*>(first + cols / 2);
    const std::uint32_t even = (upper & kEven) | (lower & kEven) << 4;
    const std::uint32_t odd = (upper >> 4 & kEven) | (lower & ~kEven);
    return TwoWords{{byte_perm(even, odd, 0x5140u), byte_perm(even, odd, 0x7362u)}};
  });
}

}  // namespace tetrad::cuda
