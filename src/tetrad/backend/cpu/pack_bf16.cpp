// SPDX-License-Identifier: Apache-2.0
// A source gives tiles of 16 lines of 16 neighbours in memory, as BF16. Its lines are rows of the operand,
// and then pairs along K lie side by side and words are transposed; or they are columns, and then two of them
// are interleaved.

#include "tetrad/backend/cpu/pack_bf16.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tetrad/backend/codec.h"
#include "tetrad/backend/cpu/simd.h"

namespace tetrad::cpu {
namespace {

constexpr std::int64_t kTile = 16;

using Tile16 = U16x16[kTile];

/// Where a tile lies in the source, and how much of it there is.
struct TilePlace {
  std::int64_t line, lines;
  std::int64_t at, count;
};

/// BF16 to be packed as it is.
struct DenseSource {
  const Bf16* data;
  std::int64_t stride;

  void load(const TilePlace& place, Tile16& tile) const {
    const Bf16* in = data + place.line * stride + place.at;
    if (place.lines == kTile && place.count == kTile) {
      for (std::int64_t l = 0; l < kTile; ++l) std::memcpy(&tile[l], in + l * stride, sizeof(U16x16));
      return;
    }
    std::memset(tile, 0, sizeof(tile));
    for (std::int64_t l = 0; l < place.lines; ++l)
      std::memcpy(&tile[l], in + l * stride, static_cast<std::size_t>(place.count) * sizeof(Bf16));
  }
};

constexpr auto kE2m1Values = [] {
  std::array<float, 1 << 4> values{};
  for (std::uint32_t code = 0; code < values.size(); ++code) values[code] = E2m1::decode(code);
  return values;
}();

/// The values of E2M1 codes in the lowest four bits of each lane; what the others hold does not matter.
inline F32x16 decode_e2m1(U32x16 codes) {
#if defined(__AVX512F__)
  return F32x16(_mm512_maskz_permutexvar_ps(0xFFFF, __m512i(codes), __m512(load_lanes(kE2m1Values.data()))));
#else
  float values[kTile];
  for (int i = 0; i < kTile; ++i) values[i] = E2m1::decode(codes[i] & 0xFu);
  return load_lanes(values);
#endif
}

/// Sixteen columns of sixteen rows of E2M1 codes: bytes[p] holds columns 2p (lower nibble) and 2p + 1 of each
/// row; scales are the rows'. Writes eight lines of a strip, each element code x scale, which must be exact.
void decode_e2m1_tile(const std::uint8_t (&bytes)[kTile / 2][kTile], const float (&scales)[kTile],
                      std::uint32_t* out) {
  const F32x16 scale = load_lanes(scales);
  for (std::int64_t p = 0; p < kTile / 2; ++p) {
    U8x16 line;
    std::memcpy(&line, bytes[p], sizeof(line));
    const U32x16 codes = __builtin_convertvector(line, U32x16);
    const U32x16 even = U32x16(decode_e2m1(codes) * scale) >> 16;
    const U32x16 odd = U32x16(decode_e2m1(codes >> 4) * scale) & 0xFFFF0000u;
    const U32x16 pairs = even | odd;
    std::memcpy(out + p * kStrip, &pairs, sizeof(pairs));
  }
}

/// Drops the lower half of f32 values that are BF16 values.
inline U16x16 upper_halves(const float* values) {
  std::uint32_t bits[kTile];
  std::memcpy(bits, values, sizeof(bits));
  U16x16 halves;
  for (int i = 0; i < kTile; ++i) halves[i] = static_cast<std::uint16_t>(bits[i] >> 16);
  return halves;
}

template <typename Codec>
class QuantizedSource {
 public:
  explicit QuantizedSource(const QuantizedTensor& tensor)
      : codes_(tensor.codes.as<std::uint8_t>()), scales_(tensor.scales.as<typename Codec::Stored>()) {
    const bool by_rows = tensor.order == CodeOrder::row_major;
    code_stride_ = by_rows ? tensor.code_bytes_per_row() : tensor.rows;
    scale_stride_ = by_rows ? tensor.scale_cols() : tensor.scale_rows();
  }

 protected:
  static constexpr int kBits = Codec::kPacked ? 4 : 8;

  /// FP8's is not the packed elements' business: see slice_scales(), or alpha.
  float scale(std::int64_t line, std::int64_t at) const {
    if constexpr (std::is_same_v<Codec, Fp8Codec>) return 1.0f;
    return Codec::decode_scale(scales_[line * scale_stride_ + at]);
  }

  const std::uint8_t* codes_;
  const typename Codec::Stored* scales_;
  std::int64_t code_stride_;   //!< bytes from one line of codes to the next
  std::int64_t scale_stride_;  //!< scales from one line of scales to the next
};

/// Row-major codes: a line is a row, a tile's line has one scale.
template <typename Codec>
struct RowSource : QuantizedSource<Codec> {
  using QuantizedSource<Codec>::QuantizedSource;
  using QuantizedSource<Codec>::kBits;

  void load(const TilePlace& place, Tile16& tile) const {
    for (std::int64_t l = 0; l < kTile; ++l)
      tile[l] = l < place.lines ? chunk(place.line + l, place.at) : U16x16{};
  }

 private:
  U16x16 chunk(std::int64_t row, std::int64_t col) const {
    constexpr int kPerWord = 32 / kBits;
    const float scale = this->scale(row, col / Codec::kBlock);
    std::uint32_t words[kTile / kPerWord];
    std::memcpy(words, this->codes_ + row * this->code_stride_ + col * kBits / 8, sizeof(words));
    std::uint32_t lanes[kTile];
    for (int i = 0; i < kTile; ++i) lanes[i] = words[i / kPerWord];
    float values[kTile];
#pragma omp simd
    for (int i = 0; i < kTile; ++i)
      values[i] =
          Codec::Element::decode((lanes[i] >> (kBits * (i % kPerWord))) & ((1u << kBits) - 1)) * scale;
    return upper_halves(values);
  }
};

/// Column-major codes: a line is a column, lanes are rows with a scale each; a line of bytes holds one
/// column, or two.
template <typename Codec>
struct ColumnSource : QuantizedSource<Codec> {
  using QuantizedSource<Codec>::QuantizedSource;

  void load(const TilePlace& place, Tile16& tile) const {
    constexpr int kPerByte = Codec::kPacked ? 2 : 1;
    constexpr std::uint32_t kMask = Codec::kPacked ? 0xFu : 0xFFu;
    float scales[kTile] = {};
    for (std::int64_t i = 0; i < place.count; ++i)
      scales[i] = this->scale(place.line / Codec::kBlock, place.at + i);
    const std::uint8_t* in = this->codes_ + place.line / kPerByte * this->code_stride_ + place.at;
    for (std::int64_t l = 0; l < kTile; l += kPerByte, in += this->code_stride_) {
      std::uint8_t bytes[kTile] = {};
      if (l < place.lines) std::memcpy(bytes, in, static_cast<std::size_t>(place.count));
      for (int part = 0; part < kPerByte; ++part) {
        float values[kTile];
#pragma omp simd
        for (int i = 0; i < kTile; ++i)
          values[i] = Codec::Element::decode((std::uint32_t{bytes[i]} >> (4 * part)) & kMask) * scales[i];
        tile[l + part] = upper_halves(values);
      }
    }
  }
};

/// E2M1 codes used as they were quantized: pairs along K share a byte, so bytes are brought into the order of
/// the strip, and decoded there.
template <typename Codec>
class PairSource {
 public:
  explicit PairSource(const QuantizedTensor& tensor)
      : codes_(tensor.codes.as<std::uint8_t>()), scales_(tensor.scales.as<std::uint8_t>()) {
    const bool by_rows = tensor.order == CodeOrder::row_major;
    row_stride_ = by_rows ? tensor.code_bytes_per_row() : 1;
    pair_stride_ = by_rows ? 1 : tensor.rows;
    scale_row_stride_ = by_rows ? tensor.scale_cols() : 1;
    scale_col_stride_ = by_rows ? 1 : tensor.scale_rows();
  }

  /// A tile of `rows` rows and 16 columns, to eight lines of a strip.
  void decode(std::int64_t row, std::int64_t rows, std::int64_t col, std::uint32_t* out) const {
    std::uint32_t stored[kTile] = {};
    const std::uint8_t* scales = scales_ + row * scale_row_stride_ + col / Codec::kBlock * scale_col_stride_;
    for (std::int64_t r = 0; r < rows; ++r) stored[r] = scales[r * scale_row_stride_];
    float values[kTile];
#pragma omp simd
    for (int r = 0; r < kTile; ++r) values[r] = Codec::decode_scale(stored[r]);
    std::uint8_t bytes[kTile / 2][kTile];
    const std::uint8_t* codes = codes_ + row * row_stride_ + col / 2 * pair_stride_;
    if (rows < kTile || pair_stride_ > 1)
      gather_bytes(codes, rows, bytes);
    else
      turn_bytes(codes, bytes);
    decode_e2m1_tile(bytes, values, out);
  }

 private:
  void gather_bytes(const std::uint8_t* codes, std::int64_t rows,
                    std::uint8_t (&bytes)[kTile / 2][kTile]) const {
    if (rows < kTile) std::memset(bytes, 0, sizeof(bytes));
    for (std::int64_t p = 0; p < kTile / 2; ++p)
      if (row_stride_ == 1 && rows == kTile)
        std::memcpy(bytes[p], codes + p * pair_stride_, kTile);
      else
        for (std::int64_t r = 0; r < rows; ++r) bytes[p][r] = codes[r * row_stride_ + p * pair_stride_];
  }

  /// Eight bytes of each of sixteen rows to sixteen bytes of each of eight pairs.
  void turn_bytes(const std::uint8_t* codes, std::uint8_t (&bytes)[kTile / 2][kTile]) const {
    U8x16 lines[kTile / 2];
    for (int r = 0; r < kTile / 2; ++r)
      lines[r] = Interleave8::low(eight_bytes(codes + r * row_stride_),
                                  eight_bytes(codes + (r + kTile / 2) * row_stride_));
    for (int step = 0; step < 3; ++step) interleave_rows<Interleave8>(lines, kTile / 2);
    for (int p = 0; p < kTile / 2; ++p) std::memcpy(bytes[p], &lines[p], kTile);
  }

  static U8x16 eight_bytes(const std::uint8_t* in) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, in, sizeof(bytes));
    return U8x16(U64x2{bytes, 0});
  }

  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  std::int64_t row_stride_, pair_stride_;  //!< in bytes
  std::int64_t scale_row_stride_, scale_col_stride_;
};

/// Lines are rows of the operand: lane r of word p is the pair p of line r.
inline void store_rows(const Tile16& tile, std::uint32_t* out) {
  for (int half = 0; half < 2; ++half) {
    U32x8 words[8];
    for (int l = 0; l < 8; ++l) words[l] = U32x8(tile[8 * half + l]);
    transpose(words);
    for (int p = 0; p < 8; ++p) std::memcpy(out + p * kStrip + 8 * half, &words[p], sizeof(U32x8));
  }
}

/// Lines are columns of the operand: two of them give a line of pairs.
inline void store_columns(const Tile16& tile, std::uint32_t* out) {
  for (int p = 0; p < 8; ++p) {
    const U32x16 words = __builtin_convertvector(tile[2 * p], U32x16) |
                         (__builtin_convertvector(tile[2 * p + 1], U32x16) << 16);
    std::memcpy(out + p * kStrip, &words, sizeof(words));
  }
}

template <typename Source>
void pack(const Source& source, bool lines_are_rows, const Rectangle& part, std::uint32_t* out) {
  Tile16 tile;
  for (std::int64_t row = 0; row < part.row_count; row += kTile)
    for (std::int64_t col = 0; col < part.col_count; col += kTile, out += kTile / 2 * kStrip) {
      const std::int64_t rows = std::min(kTile, part.row_count - row);
      const std::int64_t cols = std::min(kTile, part.col_count - col);
      if (lines_are_rows) {
        source.load({part.first_row + row, rows, part.first_col + col, cols}, tile);
        store_rows(tile, out);
      } else {
        source.load({part.first_col + col, cols, part.first_row + row, rows}, tile);
        store_columns(tile, out);
      }
    }
}

template <typename Codec>
void pack_pairs(const PairSource<Codec>& source, const Rectangle& part, std::uint32_t* out) {
  for (std::int64_t row = 0; row < part.row_count; row += kTile)
    for (std::int64_t col = 0; col < part.col_count; col += kTile, out += kTile / 2 * kStrip)
      source.decode(part.first_row + row, std::min(kTile, part.row_count - row), part.first_col + col, out);
}

}  // namespace

namespace {

/// FP8 whose scales are not alpha's business.
bool has_blocks_of_fp8(const GemmOperand& operand) {
  const QuantizedTensor* tensor = operand.quantized();
  return tensor != nullptr && tensor->spec.format == Format::fp8 && !tensor->spec.block.is_whole();
}

}  // namespace

bool has_slice_scales(const GemmOperand& operand) {
  if (!has_blocks_of_fp8(operand)) return false;
  const BlockShape& block = operand.quantized()->spec.block;
  return (operand.is_transposed() ? block.rows : block.cols) == kScaledDepth;
}

bool is_packable(const GemmOperand& operand) {
  if (operand.dense() != nullptr) return operand.dense()->dtype == DType::bf16;
  return !has_blocks_of_fp8(operand) || has_slice_scales(operand);
}

void slice_scales(const GemmOperand& operand, std::int64_t first_row, std::int64_t count, std::int64_t k,
                  float* out) {
  if (!has_slice_scales(operand)) {
    std::fill_n(out, count, 1.0f);
    return;
  }
  const QuantizedTensor& tensor = *operand.quantized();
  const bool row_major = tensor.order == CodeOrder::row_major;
  const std::int64_t row_stride = row_major ? tensor.scale_cols() : 1;
  const std::int64_t col_stride = row_major ? 1 : tensor.scale_rows();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = operand.is_transposed() ? k : first_row + i;
    const std::int64_t col = operand.is_transposed() ? first_row + i : k;
    out[i] = tensor.scales.as<float>()[row / tensor.spec.block.rows * row_stride +
                                       col / tensor.spec.block.cols * col_stride];
  }
}

void pack_bf16(const GemmOperand& operand, const Rectangle& part, std::uint32_t* out) {
  if (operand.dense() != nullptr) {
    const MatrixView view = operand.is_transposed() ? operand.dense()->transposed() : *operand.dense();
    const bool by_rows = view.is_row_major();
    pack(DenseSource{static_cast<const Bf16*>(view.data), by_rows ? view.row_stride : view.col_stride},
         by_rows, part, out);
    return;
  }
  const QuantizedTensor& tensor = *operand.quantized();
  const bool row_major = tensor.order == CodeOrder::row_major;
  with_codec(tensor.spec.format, tensor.amax, tensor.spec.scaling, [&](const auto& codec) {
    using Codec = std::remove_cvref_t<decltype(codec)>;
    const bool lines_are_rows = row_major != operand.is_transposed();
    if constexpr (Codec::kPacked)
      if (!operand.is_transposed()) return pack_pairs(PairSource<Codec>(tensor), part, out);
    if (row_major)
      pack(RowSource<Codec>(tensor), lines_are_rows, part, out);
    else
      pack(ColumnSource<Codec>(tensor), lines_are_rows, part, out);
  });
}

}  // namespace tetrad::cpu
