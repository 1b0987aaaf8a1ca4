// SPDX-License-Identifier: Apache-2.0
#pragma once
// Block scales of NVFP4 on their way to the tiles of numerics/blackwell_layout.h. (Nothing here knows of
// threads: tests call it without a device.)

#include <cstdint>

#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"
#include "tetrad/numerics/blackwell_layout.h"

namespace tetrad::cuda {

/// The scale of row r and scale column c of an operand is in[(r >> row_shift) * row_step + c * column_step].
struct SwizzledScales {
  const std::uint8_t* in;
  int row_shift;
  std::int64_t row_step, column_step;
  std::int64_t rows, columns;
  std::uint8_t* out;

  static constexpr std::int64_t kPieceRows = 32;  //!< rows of a tile that lie 16 bytes apart
  static_assert(blackwell::scale_offset(kPieceRows, 0, 1) == 4 &&
                    blackwell::scale_offset(3 * kPieceRows, 0, 1) == 12 &&
                    blackwell::scale_offset(1, 0, 1) == 16,
                "four scale columns of four rows 32 apart are 16 neighbouring bytes");

  /// How many, each of 16 bytes, the padding included; neighbours in memory.
  TETRAD_HD std::int64_t pieces() const {
    return blackwell::scale_bytes(rows, columns) / static_cast<std::int64_t>(sizeof(FourWords));
  }
  TETRAD_HD void write(std::int64_t piece) const {
    const std::int64_t tile = piece / kPieceRows;
    const std::int64_t tiles_per_row = blackwell::tiles(columns, blackwell::kTileColumns);
    const std::int64_t row = tile / tiles_per_row * blackwell::kTileRows + piece % kPieceRows;
    const std::int64_t column = tile % tiles_per_row * blackwell::kTileColumns;
    FourWords words;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i) words.word[i] = four_scales(row + i * kPieceRows, column);
    *reinterpret_cast<FourWords*>(out + blackwell::scale_offset(row, column, columns)) = words;
  }

 private:
  /// A byte for each column; zero beyond the edges.
  TETRAD_HD std::uint32_t four_scales(std::int64_t row, std::int64_t column) const {
    if (row >= rows) return 0;
    const std::uint8_t* first = in + (row >> row_shift) * row_step + column * column_step;
    if (column_step == 1 && row_step % 4 == 0) return *reinterpret_cast<const std::uint32_t*>(first);
    std::uint32_t word = 0;
    TETRAD_UNROLL_ON_DEVICE
    for (int i = 0; i < 4; ++i)
      if (column + i < columns) word |= std::uint32_t{first[i * column_step]} << (8 * i);
    return word;
  }
};

}  // namespace tetrad::cuda
