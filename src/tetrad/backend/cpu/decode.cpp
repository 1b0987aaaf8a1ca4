// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cpu/decode.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tetrad/backend/codec.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"

namespace tetrad::cpu {
namespace {

constexpr int kDecoded = 16;

/// What every decoded element is multiplied by last.
float tensor_factor(const QuantizedTensor& tensor, DecodeTo to) {
  if (to == DecodeTo::operand) return 1.0f;
  if (tensor.spec.format == Format::nvfp4)
    return nvfp4::tensor_scale(tensor.amax, tensor.spec.scaling).decode;
  return 1.0f;
}

/// 16 neighbours along a row. Each lane gets the 32-bit word that holds its code, so that all lanes have one
/// width.
template <typename Codec>
void decode_chunk(const std::uint8_t* codes, float scale, float factor, float* out) {
  constexpr int kBits = Codec::kPacked ? 4 : 8;
  constexpr int kPerWord = 32 / kBits;
  std::uint32_t words[kDecoded / kPerWord];
  std::memcpy(words, codes, sizeof(words));
  std::uint32_t lanes[kDecoded];
  for (int i = 0; i < kDecoded; ++i) lanes[i] = words[i / kPerWord];
#pragma omp simd
  for (int i = 0; i < kDecoded; ++i) {
    const std::uint32_t code = (lanes[i] >> (kBits * (i % kPerWord))) & ((1u << kBits) - 1);
    out[i] = Codec::Element::decode(code) * scale * factor;
  }
}

template <typename Codec>
class Decoder {
 public:
  Decoder(const QuantizedTensor& tensor, DecodeTo to)
      : tensor_(tensor),
        codes_(tensor.codes.as<std::uint8_t>()),
        scales_(tensor.scales.as<typename Codec::Stored>()),
        factor_(tensor_factor(tensor, to)),
        rows_per_scale_(tensor.spec.format == Format::fp8 ? std::max<std::int64_t>(1, tensor.spec.block.rows)
                                                          : 1),
        scale_row_stride_(tensor.order == CodeOrder::row_major ? tensor.scale_cols() : 1),
        scale_col_stride_(tensor.order == CodeOrder::row_major ? 1 : tensor.scale_rows()) {
    if (!tensor.spec.block.is_whole()) return;
    // One scale everywhere; for an operand it is alpha's business.
    scale_row_stride_ = scale_col_stride_ = 0;
    if (to == DecodeTo::operand) scales_ = &kOne;
  }

  void rows(const Rectangle& part, float* out, std::int64_t out_stride) const {
    const std::int64_t row_bytes = tensor_.code_bytes_per_row();
    for (std::int64_t row = 0; row < part.row_count; ++row) {
      const std::uint8_t* codes = codes_ + (part.first_row + row) * row_bytes;
      const auto* scales = scale_row(part.first_row + row);
      float* values = out + row * out_stride;
      for (std::int64_t col = 0; col < part.col_count; col += kDecoded) {
        const std::int64_t at = part.first_col + col;
        const float scale = Codec::decode_scale(scales[at / Codec::kBlock * scale_col_stride_]);
        decode_chunk<Codec>(codes + (Codec::kPacked ? at / 2 : at), scale, factor_, values + col);
      }
    }
  }

  /// Column-major codes: neighbours in memory are rows; a byte row holds one or two columns.
  void columns(const Rectangle& part, float* out, std::int64_t out_stride) const {
    std::vector<float> scales(static_cast<std::size_t>(part.row_count));
    for (std::int64_t col = 0; col < part.col_count; ++col) {
      const std::int64_t at = part.first_col + col;
      if (col % kDecoded == 0)
        for (std::int64_t row = 0; row < part.row_count; ++row)
          scales[static_cast<std::size_t>(row)] =
              Codec::decode_scale(scale_row(part.first_row + row)[at / Codec::kBlock * scale_col_stride_]);
      const std::uint8_t* codes = codes_ + (Codec::kPacked ? at / 2 : at) * tensor_.rows + part.first_row;
      const int shift = Codec::kPacked && at % 2 == 1 ? 4 : 0;
      const std::uint32_t mask = Codec::kPacked ? 0xFu : 0xFFu;
      float* column = out + col * out_stride;
      for (std::int64_t row = 0; row < part.row_count; ++row)
        column[row] = Codec::Element::decode((static_cast<std::uint32_t>(codes[row]) >> shift) & mask) *
                      scales[static_cast<std::size_t>(row)] * factor_;
    }
  }

 private:
  static constexpr typename Codec::Stored kOne = 1;  // used by FP8 only, where a stored 1 means 1

  const typename Codec::Stored* scale_row(std::int64_t row) const {
    return scales_ + row / rows_per_scale_ * scale_row_stride_;
  }

  const QuantizedTensor& tensor_;
  const std::uint8_t* codes_;
  const typename Codec::Stored* scales_;
  float factor_;
  std::int64_t rows_per_scale_;  //!< rows that share a stored scale
  std::int64_t scale_row_stride_;
  std::int64_t scale_col_stride_;
};

}  // namespace

void decode(const QuantizedTensor& tensor, const Rectangle& part, DecodeTo to, float* out,
            std::int64_t out_stride) {
  with_codec(tensor.spec.format, tensor.amax, tensor.spec.scaling, [&](const auto& codec) {
    const Decoder<std::remove_cvref_t<decltype(codec)>> decoder(tensor, to);
    if (tensor.order == CodeOrder::row_major)
      decoder.rows(part, out, out_stride);
    else
      decoder.columns(part, out, out_stride);
  });
}

void dequantize(Threads& threads, const QuantizedTensor& tensor, const MutableMatrixView& out) {
  TETRAD_CHECK(out.rows == tensor.rows && out.cols == tensor.cols && out.is_row_major(),
               "dequantize: a {} x {} tensor does not fit a {} x {} output", tensor.rows, tensor.cols,
               out.rows, out.cols);
  TETRAD_CHECK(out.dtype == DType::f32 || out.dtype == DType::bf16,
               "dequantize: output must be F32 or BF16, not {}", name_of(out.dtype));
  constexpr std::int64_t kRows = 32;
  threads.parallel_for(ceil_div(tensor.rows, kRows), [&](std::int64_t piece) {
    const std::int64_t first = piece * kRows;
    const std::int64_t count = std::min(kRows, tensor.rows - first);
    std::vector<float> panel(static_cast<std::size_t>(count * tensor.cols));
    const bool row_major = tensor.order == CodeOrder::row_major;
    decode(tensor, {first, count, 0, tensor.cols}, DecodeTo::value, panel.data(),
           row_major ? tensor.cols : count);
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int64_t col = 0; col < tensor.cols; ++col) {
        const float value =
            panel[static_cast<std::size_t>(row_major ? row * tensor.cols + col : col * count + row)];
        const std::int64_t at = (first + row) * out.row_stride + col;
        if (out.dtype == DType::f32)
          static_cast<float*>(out.data)[at] = value;
        else
          static_cast<Bf16*>(out.data)[at] = Bf16::from_f32(value);
      }
  });
}

}  // namespace tetrad::cpu
