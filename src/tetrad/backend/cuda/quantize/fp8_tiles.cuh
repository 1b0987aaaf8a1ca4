// SPDX-License-Identifier: Apache-2.0
#pragma once
// FP8 1x128 of a BF16 matrix, a tile of 128x128 at a time: a block of threads has the blocks of the tile's
// rows whole, and those of its columns, so that values which are read once serve both. Thread t holds the 8x8
// square in row t / 16 and column t % 16 of the tile's squares. What lies between two barriers is a function
// of the thread, so that tests can do the work of all of them without a device.

#include <bit>
#include <cstdint>

#include "tetrad/backend/cuda/common/transposed_tile.cuh"
#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"
#include "tetrad/backend/cuda/quantize/e4m3_words.cuh"
#include "tetrad/backend/cuda/quantize/problem.h"
#include "tetrad/numerics/fp8.h"

namespace tetrad::cuda {

/// What becomes of the columns.
enum class Columns : std::uint8_t {
  unused,
  as_they_lie,  //!< codes [rows, cols] of memory
  transposed,   //!< codes [cols, rows] of memory
};

struct TileForm {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  std::int64_t line_step = 0;   //!< from the scale of a row (or column) to that of the next
  std::int64_t block_step = 0;  //!< and to that of its next block
};

/// The matrix as it lies in memory, by rows.
struct TileProblem {
  const Bf16* x = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
  std::uint32_t tiles_per_row = 0;
  TileForm row_form, column_form;

  struct Place {
    std::int64_t row, col;  //!< the tile's first element
  };
  TETRAD_HD Place tile(std::uint32_t index) const {
    const std::uint32_t row = index / tiles_per_row;
    return {std::int64_t{row} * kTile, std::int64_t{index - row * tiles_per_row} * kTile};
  }
};

static_assert(kTile == fp8::kBlock);

inline TileForm tile_form(const QuantProblem& p) {
  const bool row_major = p.order == CodeOrder::row_major;
  return {static_cast<std::uint8_t*>(p.codes), static_cast<float*>(p.scales), row_major ? p.scale_cols : 1,
          row_major ? 1 : p.scale_rows};
}

/// For a problem that suits_fp8_1x128(), or for one by rows and one by columns of the same matrix.
inline TileProblem tile_problem(const QuantProblem& p) {
  TileProblem result;
  const bool rows = p.is_row_major();
  result.x = static_cast<const Bf16*>(p.x);
  result.rows = rows ? p.rows : p.cols;
  result.cols = rows ? p.cols : p.rows;
  result.stride = rows ? p.row_stride : p.col_stride;
  result.tiles_per_row = static_cast<std::uint32_t>((result.cols + kTile - 1) / kTile);
  (rows ? result.row_form : result.column_form) = tile_form(p);
  return result;
}
inline TileProblem tile_problem(const QuantProblem& row, const QuantProblem& column) {
  TileProblem result = tile_problem(row);
  result.column_form = tile_form(column);
  return result;
}

/// FP8 1x128 of BF16, to nearest: rows into row-major codes, columns into either order.
inline bool suits_fp8_1x128(const QuantProblem& p) {
  const std::int64_t stride = p.is_row_major() ? p.row_stride : p.col_stride;
  const std::int64_t length = p.is_row_major() ? p.cols : p.rows;  // a row of memory
  constexpr std::int64_t kVector = kSquare * static_cast<std::int64_t>(sizeof(Bf16));
  const std::int64_t tiles = ((p.rows + kTile - 1) / kTile) * ((p.cols + kTile - 1) / kTile);
  return p.format == Format::fp8 && p.dtype == DType::bf16 && !p.whole && p.block_row_shift == 0 &&
         p.rounding == Rounding::nearest && p.hadamard == 0 &&
         !(p.is_row_major() && p.order == CodeOrder::col_major) && length % kSquare == 0 &&
         reinterpret_cast<std::uintptr_t>(p.x) % kVector == 0 &&
         stride * static_cast<std::int64_t>(sizeof(Bf16)) % kVector == 0 && tiles < std::int64_t{1} << 31;
}

struct TileShared {
  /// The maxima of the eight lines of each square, bits of BF16, as [along the line][across]. The odd length
  /// keeps neighbouring squares in different banks.
  using Maxima = FourWords[kSquares][kSquares + 1];
  Maxima row_amax;
  Maxima column_amax;
  alignas(16) float row_encode[kTile];
  alignas(16) float column_encode[kTile];
  TransposedTile transposed;  //!< codes by column
};

/// Words [r][p] have columns 2p and 2p + 1 of row r.
struct Square {
  std::uint32_t pair[kSquare][kSquare / 2];
};

/// Where a thread's square lies.
struct SquarePlace {
  std::int64_t row, col;
  int rows;  //!< how many of the square's rows are inside the matrix; columns are all inside then
};
TETRAD_HD inline SquarePlace square_place(const TileProblem& p, const TileProblem::Place& tile, int thread) {
  const std::int64_t row = tile.row + thread / kSquares * kSquare;
  const std::int64_t col = tile.col + thread % kSquares * kSquare;
  const std::int64_t below = p.rows - row;
  return {row, col, col < p.cols ? static_cast<int>(below < kSquare ? below : kSquare) : 0};
}

/// Zeros outside the matrix.
TETRAD_HD inline Square load_square(const TileProblem& p, const TileProblem::Place& tile, int thread) {
  const SquarePlace at = square_place(p, tile, thread);
  const Bf16* x = p.x + at.row * p.stride + at.col;
  Square square;
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kSquare; ++r) {
    FourWords words = {};
    if (r < at.rows) words = *reinterpret_cast<const FourWords*>(x + r * p.stride);
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kSquare / 2; ++i) square.pair[r][i] = words.word[i];
  }
  return square;
}

/// The maxima of the square's eight rows and of its eight columns.
struct Maxima {
  FourWords rows, columns;
};
TETRAD_HD inline Maxima maxima_of(const Square& square) {
  Maxima result = {};
  std::uint32_t even = 0;  // maxima of two rows, two halves each, whose larger one is wanted
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kSquare; ++r) {
    std::uint32_t of_row = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < kSquare / 2; ++i) {
      const std::uint32_t magnitudes = square.pair[r][i] & kMagnitudesOfPair;
      of_row = max_halves(of_row, magnitudes);
      result.columns.word[i] = max_halves(result.columns.word[i], magnitudes);
    }
    if (r % 2 == 0)
      even = of_row;
    else
      result.rows.word[r / 2] =
          max_halves(byte_perm(even, of_row, 0x5410u), byte_perm(even, of_row, 0x7632u));
  }
  return result;
}

template <bool kRows, Columns kColumns>
TETRAD_HD inline void share_maxima(const Square& square, int thread, TileShared& shared) {
  const int square_row = thread / kSquares;
  const int square_col = thread % kSquares;
  const Maxima maxima = maxima_of(square);
  if constexpr (kRows) shared.row_amax[square_col][square_row] = maxima.rows;
  if constexpr (kColumns != Columns::unused) shared.column_amax[square_row][square_col] = maxima.columns;
}

/// The scale of one row or column of the tile; returns the bits of its amax.
TETRAD_HD inline std::uint32_t share_scale(const TileShared::Maxima& maxima, int line, float (&encode)[kTile],
                                           float* stored) {
  std::uint32_t pair = 0;  // maxima of this line and its neighbour
  TETRAD_UNROLL_ON_DEVICE
  for (const auto& squares : maxima)
    pair = max_halves(pair, squares[line / kSquare].word[line % kSquare / 2]);
  const std::uint32_t largest = line % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u;
  const fp8::BlockScale scale = fp8::block_scale(std::bit_cast<float>(largest));
  encode[line] = scale.encode;
  if (stored != nullptr) *stored = scale.decode;
  return largest;
}

/// Each thread has a row or a column.
template <bool kRows, Columns kColumns>
TETRAD_HD inline std::uint32_t share_scales(const TileProblem& p, const TileProblem::Place& tile, int thread,
                                            TileShared& shared) {
  const auto place = [](const TileForm& form, std::int64_t line, std::int64_t lines, std::int64_t first) {
    return line < lines ? form.scales + line * form.line_step + first / kTile * form.block_step : nullptr;
  };
  if (thread < kTile) {
    if constexpr (kRows)
      return share_scale(shared.row_amax, thread, shared.row_encode,
                         place(p.row_form, tile.row + thread, p.rows, tile.col));
  } else {
    if constexpr (kColumns != Columns::unused)
      return share_scale(shared.column_amax, thread - kTile, shared.column_encode,
                         place(p.column_form, tile.col + thread - kTile, p.cols, tile.row));
  }
  return 0;
}

/// Codes that lie as the values do; `encode(r, c)` is the factor of an element.
template <typename Encode>
TETRAD_HD inline void store_codes_of_square(const TileProblem& p, const TileProblem::Place& tile, int thread,
                                            const Square& square, std::uint8_t* codes, const Encode& encode) {
  const SquarePlace at = square_place(p, tile, thread);
  codes += at.row * p.cols + at.col;
  TETRAD_UNROLL_ON_DEVICE
  for (int r = 0; r < kSquare; ++r) {
    TwoWords words;
    TETRAD_UNROLL_ON_DEVICE
    for (int w = 0; w < 2; ++w) {
      const std::uint32_t first = square.pair[r][2 * w];
      const std::uint32_t second = square.pair[r][2 * w + 1];
      words.word[w] =
          e4m3_codes(low_bf16(first) * encode(r, 4 * w), high_bf16(first) * encode(r, 4 * w + 1),
                     low_bf16(second) * encode(r, 4 * w + 2), high_bf16(second) * encode(r, 4 * w + 3));
    }
    if (r < at.rows) *reinterpret_cast<TwoWords*>(codes + r * p.cols) = words;
  }
}

TETRAD_HD inline void encode_rows_of_square(const TileProblem& p, const TileProblem::Place& tile, int thread,
                                            const Square& square, const TileShared& shared) {
  const float* factors = shared.row_encode + thread / kSquares * kSquare;
  store_codes_of_square(p, tile, thread, square, p.row_form.codes,
                        [&](int r, int /*c*/) { return factors[r]; });
}

TETRAD_HD inline void encode_columns_of_square(const TileProblem& p, const TileProblem::Place& tile,
                                               int thread, const Square& square, const TileShared& shared) {
  float factors[kSquare];
  TETRAD_UNROLL_ON_DEVICE
  for (int c = 0; c < kSquare; ++c) factors[c] = shared.column_encode[thread % kSquares * kSquare + c];
  store_codes_of_square(p, tile, thread, square, p.column_form.codes,
                        [&](int /*r*/, int c) { return factors[c]; });
}

/// The codes of the square's columns, to where store_transposed() takes whole columns from.
TETRAD_HD inline void transpose_columns_of_square(int thread, const Square& square, TileShared& shared) {
  const int square_row = thread / kSquares;
  const int square_col = thread % kSquares;
  TETRAD_UNROLL_ON_DEVICE
  for (int c = 0; c < kSquare; ++c) {
    const int column = square_col * kSquare + c;
    const float factor = shared.column_encode[column];
    const auto value = [&](int r) {
      const std::uint32_t pair = square.pair[r][c / 2];
      // Not as low_bf16() and high_bf16() do it, or else the compiler keeps all 64 values for the rows.
      return std::bit_cast<float>(byte_perm(pair, 0u, c % 2 == 0 ? 0x1044u : 0x3244u)) * factor;
    };
    shared.transposed.part(column, square_row) = {{e4m3_codes(value(0), value(1), value(2), value(3)),
                                                   e4m3_codes(value(4), value(5), value(6), value(7))}};
  }
}

TETRAD_HD inline void store_transposed(const TileProblem& p, const TileProblem::Place& tile, int thread,
                                       const TileShared& shared) {
  shared.transposed.store(thread, tile.row, tile.col, p.rows, p.cols, p.column_form.codes);
}

/// What follows once the scales are shared; store_transposed() comes after another barrier.
template <bool kRows, Columns kColumns>
TETRAD_HD inline void encode_square(const TileProblem& p, const TileProblem::Place& tile, int thread,
                                    const Square& square, TileShared& shared) {
  if constexpr (kColumns == Columns::transposed) transpose_columns_of_square(thread, square, shared);
  if constexpr (kRows) encode_rows_of_square(p, tile, thread, square, shared);
  if constexpr (kColumns == Columns::as_they_lie) encode_columns_of_square(p, tile, thread, square, shared);
}

}  // namespace tetrad::cuda
