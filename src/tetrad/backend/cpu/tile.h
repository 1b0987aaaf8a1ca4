// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tiles: sixteen runs of consecutive elements along the block axis, side by side in SIMD lanes.
//
// With one run per lane, everything the numerics do to a run (transform, block maximum, scale, cast) is the
// same scalar operation in every lane, whichever way the matrix lies in memory. Only loading and storing know
// about the layout, and there every lane is a constant stride away from the one before.

#include <algorithm>
#include <cstdint>

#include "tetrad/core/matrix.h"
#include "tetrad/ops/quantize.h"

namespace tetrad::cpu {

inline constexpr int kLanes = 16;
inline constexpr int kChunk = 16;    //!< elements of a run that are loaded, encoded and stored together
inline constexpr int kMaxRun = 128;  //!< the longest block or transform

/// How the lanes of a tile step through the matrix: neighbouring runs of one row, or neighbouring rows at one
/// column.
struct LaneStep {
  std::int64_t rows;
  std::int64_t cols;
};

struct Tile {
  alignas(64) float value[kMaxRun][kLanes];  //!< (element of the run, lane); zero outside the matrix
  std::int64_t row;                          //!< of lane 0
  std::int64_t col;                          //!< of lane 0's first element
  int lanes;                                 //!< lanes in use: the first ones
  int length;                                //!< elements of each run
  int last_inside;  //!< elements of the last used lane's run that are inside the matrix

  /// Whether all of the chunk that starts at element `first` is inside the matrix, in this lane.
  bool has(int lane, int first) const {
    return lane < lanes - 1 || (lane == lanes - 1 && first < last_inside);
  }
  /// Lanes, counted from 0, in which the chunk at `first` is inside. (Runs of neighbouring rows end
  /// together.)
  int lanes_with(int first, const LaneStep& step) const {
    if (first < last_inside) return lanes;
    return step.rows > 0 ? 0 : lanes - 1;
  }
};

/// How what a transform leaves is rounded to BF16.
enum class TransformRounding : std::uint8_t {
  any,     //!< as it is defined
  finite,  //!< the same, where it is known that nothing is NaN or infinite
  later,   //!< not at all, for maxima: rounding the largest of some values gives the largest of them rounded
};

/// A sign mask as what flips the signs of f32.
struct SignBits {
  std::uint32_t of[kMaxHadamard];
};

/// Cuts a matrix into units of work and those into tiles, loaded and transformed.
class TileReader {
 public:
  /// `x` is the matrix as consumed: blocks along its columns. Units and runs hold whole blocks.
  TileReader(const MatrixView& x, const QuantSpec& spec, std::int64_t block_rows, std::int64_t block_cols);

  const LaneStep& step() const { return step_; }

  /// A unit of work: rows of a row-major matrix, columns of one that lies transposed.
  struct Unit {
    std::int64_t begin, end;
  };
  Unit extent_of(std::int64_t unit) const {
    return {unit * unit_extent_, std::min(outer_extent_, (unit + 1) * unit_extent_)};
  }

  /// Units share no block; how many there are depends on the matrix only.
  std::int64_t units() const { return units_; }

  /// Calls body(tile, index of the tile in the unit) for each tile of a unit, or for every so many of them; a
  /// block's rows come in ascending order.
  template <typename Body>
  void for_each_tile(std::int64_t unit, const Body& body, std::int64_t every = 1,
                     TransformRounding rounding = TransformRounding::any) const {
    Tile tile;
    tile.length = run_;
    std::int64_t index = 0;
    const Unit u = extent_of(unit);
    for (std::int64_t outer = u.begin; outer < u.end; outer += outer_step_)
      for (std::int64_t inner = 0; inner < inner_extent_; inner += inner_step_, ++index) {
        if (index % every != 0) continue;
        place(tile, outer, inner);
        load(tile, rounding);
        body(static_cast<const Tile&>(tile), index);
      }
  }

 private:
  void place(Tile& tile, std::int64_t outer, std::int64_t inner) const;
  void load(Tile& tile, TransformRounding rounding) const;

  MatrixView x_;
  int hadamard_;
  SignBits signs_;
  int run_;  //!< elements per run: whole blocks and whole transforms
  LaneStep step_;
  // A unit is a range of the outer dimension: rows, or columns if x lies transposed. Tiles walk along memory
  // inside it.
  std::int64_t outer_extent_, outer_step_;
  std::int64_t inner_extent_, inner_step_;
  std::int64_t unit_extent_, units_;
};

}  // namespace tetrad::cpu
