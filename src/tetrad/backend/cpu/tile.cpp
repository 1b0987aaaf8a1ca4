// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/tile.h"

#include <cstring>

#include "tetrad/backend/cpu/simd.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kUnitElements =
    32768;  // enough to make a unit's overhead vanish, small enough to share out

inline void widen(const float* in, int count, float* out) {
  for (int i = 0; i < count; ++i) out[i] = in[i];
}
inline void widen(const Bf16* in, int count, float* out) {
  for (int i = 0; i < count; ++i) out[i] = in[i].to_f32();
}
inline void widen_lanes(const float* in, float* out) { copy_lanes(in, out); }
inline void widen_lanes(const Bf16* in, float* out) { store_lanes(load_lanes(in), out); }

/// Turns the 16 x 16 square of one chunk of every lane: in[lane * stride + element] -> value[element][lane].
inline void turn_square(const float* in, std::int64_t stride, float (*value)[kLanes]) {
  for (int r = 0; r < kLanes; r += 8)
    for (int c = 0; c < kChunk; c += 8) {
      U32x8 rows[8];
      for (int i = 0; i < 8; ++i) std::memcpy(&rows[i], in + (r + i) * stride + c, sizeof(rows[i]));
      transpose(rows);
      for (int i = 0; i < 8; ++i) std::memcpy(value[c + i] + r, &rows[i], sizeof(rows[i]));
    }
}
inline void turn_square(const Bf16* in, std::int64_t stride, float (*value)[kLanes]) {
  U16x16 rows[kLanes];
  for (int r = 0; r < kLanes; ++r) std::memcpy(&rows[r], in + r * stride, sizeof(rows[r]));
  transpose(rows);
  for (int i = 0; i < kChunk; ++i) {
    Bf16 turned[kLanes];
    std::memcpy(turned, &rows[i], sizeof(turned));
    widen_lanes(turned, value[i]);
  }
}

/// Lanes are runs of a row, so each chunk of a tile is a square to turn.
template <typename T>
void load_runs(const MatrixView& x, Tile& tile) {
  const auto* data = static_cast<const T*>(x.data) + tile.row * x.row_stride + tile.col;
  for (int first = 0; first < tile.length; first += kChunk) {
    if (tile.lanes == kLanes && first < tile.last_inside) {
      turn_square(data + first, tile.length, tile.value + first);
      continue;
    }
    T square[kLanes][kChunk] = {};
    for (int lane = 0; lane < tile.lanes; ++lane)
      if (tile.has(lane, first))
        std::memcpy(square[lane], data + lane * tile.length + first, sizeof(square[lane]));
    turn_square(&square[0][0], kChunk, tile.value + first);
  }
}

/// Lanes are rows of a matrix that lies transposed: each step along the run is a contiguous read.
template <typename T>
void load_rows(const MatrixView& x, Tile& tile) {
  const auto* data = static_cast<const T*>(x.data) + tile.row + tile.col * x.col_stride;
  for (int i = 0; i < tile.last_inside; ++i) {
    const T* in = data + i * x.col_stride;
    if (tile.lanes == kLanes) {
      widen_lanes(in, tile.value[i]);
    } else {
      std::memset(tile.value[i], 0, sizeof(tile.value[i]));
      widen(in, tile.lanes, tile.value[i]);
    }
  }
  for (int i = tile.last_inside; i < tile.length; ++i) std::memset(tile.value[i], 0, sizeof(tile.value[i]));
}

SignBits bits_of(const SignMask& mask) {
  SignBits bits;
  for (int i = 0; i < kMaxHadamard; ++i) bits.of[i] = mask.is_negative(i) ? 0x80000000u : 0u;
  return bits;
}

/// `element(i)` has element i of each run, rounded to BF16.
template <int kSize, typename Element>
void transform_runs(Tile& tile, const SignBits& signs, TransformRounding rounding, const Element& element) {
  for (int first = 0; first < tile.length; first += kSize) {
    F32x16 run[kSize];
    for (int i = 0; i < kSize; ++i) run[i] = F32x16(U32x16(element(first + i)) ^ signs.of[i]);
    hadamard<kSize>(run);
    if (rounding == TransformRounding::any)
      for (F32x16& lanes : run) lanes = rounded_to_bf16(lanes);
    if (rounding == TransformRounding::finite)
      for (F32x16& lanes : run) lanes = finite_rounded_to_bf16(lanes);
    for (int i = 0; i < kSize; ++i) store_lanes(run[i], tile.value[first + i]);
  }
}

template <typename Element>
void transform(Tile& tile, int size, const SignBits& signs, TransformRounding rounding,
               const Element& element) {
  switch (size) {
    case 2:
      return transform_runs<2>(tile, signs, rounding, element);
    case 4:
      return transform_runs<4>(tile, signs, rounding, element);
    case 8:
      return transform_runs<8>(tile, signs, rounding, element);
    case 16:
      return transform_runs<16>(tile, signs, rounding, element);
    case 32:
      return transform_runs<32>(tile, signs, rounding, element);
    case 64:
      return transform_runs<64>(tile, signs, rounding, element);
    case 128:
      return transform_runs<128>(tile, signs, rounding, element);
    default:
      fail("Hadamard size {} is not supported", size);
  }
}

}  // namespace

TileReader::TileReader(const MatrixView& x, const QuantSpec& spec, std::int64_t block_rows,
                       std::int64_t block_cols)
    : x_(x),
      hadamard_(spec.hadamard),
      signs_(bits_of(spec.signs)),
      run_(static_cast<int>(std::max<std::int64_t>(block_cols, spec.hadamard))) {
  TETRAD_CHECK(x.dtype == DType::f32 || x.dtype == DType::bf16,
               "cannot quantize {} values: convert to F32 or BF16", name_of(x.dtype));
  TETRAD_CHECK(x.row_stride == 1 || x.col_stride == 1,
               "a matrix to quantize must be contiguous along one dimension");
  if (x.is_row_major()) {
    step_ = {0, run_};
    outer_extent_ = x.rows, outer_step_ = 1;
    inner_extent_ = x.cols, inner_step_ = kLanes * run_;
  } else {
    step_ = {1, 0};
    outer_extent_ = x.cols, outer_step_ = run_;
    inner_extent_ = x.rows, inner_step_ = kLanes;
  }
  const std::int64_t granule = x.is_row_major() ? block_rows : run_;
  unit_extent_ = granule * std::max<std::int64_t>(
                               1, kUnitElements / (granule * std::max<std::int64_t>(1, inner_extent_)));
  units_ = ceil_div(outer_extent_, unit_extent_);
}

void TileReader::place(Tile& tile, std::int64_t outer, std::int64_t inner) const {
  if (step_.rows > 0) {
    tile.row = inner;
    tile.col = outer;
    tile.lanes = static_cast<int>(std::min<std::int64_t>(kLanes, x_.rows - inner));
    tile.last_inside = static_cast<int>(std::min<std::int64_t>(run_, x_.cols - outer));
    return;
  }
  tile.row = outer;
  tile.col = inner;
  const std::int64_t left = x_.cols - inner;
  tile.lanes = static_cast<int>(std::min<std::int64_t>(kLanes, ceil_div(left, run_)));
  tile.last_inside = static_cast<int>(std::min<std::int64_t>(run_, left - (tile.lanes - 1) * run_));
}

void TileReader::load(Tile& tile, TransformRounding rounding) const {
  const bool bf16 = x_.dtype == DType::bf16;
  const bool lanes_are_rows = step_.rows > 0;
  if (hadamard_ > 0 && bf16 && lanes_are_rows && tile.lanes == kLanes && tile.last_inside == tile.length) {
    // As most are: straight from memory into the registers of the transform.
    const Bf16* data = static_cast<const Bf16*>(x_.data) + tile.row + tile.col * x_.col_stride;
    return transform(tile, hadamard_, signs_, rounding,
                     [&](int i) { return load_lanes(data + i * x_.col_stride); });
  }
  if (lanes_are_rows)
    bf16 ? load_rows<Bf16>(x_, tile) : load_rows<float>(x_, tile);
  else
    bf16 ? load_runs<Bf16>(x_, tile) : load_runs<float>(x_, tile);
  if (hadamard_ > 0)
    transform(tile, hadamard_, signs_, rounding, [&](int i) {
      const F32x16 lanes = load_lanes(tile.value[i]);
      return bf16 ? lanes : rounded_to_bf16(lanes);
    });
}

}  // namespace tetrad::cpu
