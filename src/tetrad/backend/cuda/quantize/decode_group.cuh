// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decoding 16 neighbours of a row, 8 of them, or 16 columns of four rows: functions of (problem, item) that
// know nothing of threads.

#include <cstdint>
#include <limits>

#include "tetrad/backend/codec.h"
#include "tetrad/backend/cuda/quantize/e2m1_words.cuh"

namespace tetrad::cuda {

/// A quantized [rows, cols] matrix as kernels see it.
struct DecodeProblem {
  const std::uint8_t* codes = nullptr;  //!< or, in the operand's form, BF16
  const void* scales = nullptr;
  std::int64_t rows = 0, cols = 0;
  CodeOrder order = CodeOrder::row_major;
  Form form = Form::packed;
  bool has_tensor_scale = false;  //!< NVFP4's, wanted in the result
  Scaling scaling = Scaling::standard;
  const float* device_amax = nullptr;  //!< where the tensor has it; else:
  float amax = 0;
  int scale_row_shift = 0;  //!< rows that share a stored scale: 2^shift
  std::int64_t scale_row_stride = 0, scale_col_stride = 0;

  TETRAD_HD float tensor_decode() const {
    if (!has_tensor_scale) return 1.0f;
    return nvfp4::tensor_scale(device_amax != nullptr ? *device_amax : amax, scaling).decode;
  }
};

/// The elements (row, col), ..., (row, col + 15).
template <typename Codec>
TETRAD_HD inline void decode_group(const DecodeProblem& p, std::int64_t row, std::int64_t col, float factor,
                                   float (&out)[16]) {
  if (p.form == Form::operand) {
    const auto* values = reinterpret_cast<const Bf16*>(p.codes);
    for (int i = 0; i < 16; ++i) {
      const std::int64_t at =
          p.order == CodeOrder::row_major ? row * p.cols + col + i : (col + i) * p.rows + row;
      out[i] = values[at].to_f32() * factor;
    }
    return;
  }
  const std::int64_t scale_at =
      (row >> p.scale_row_shift) * p.scale_row_stride + col / Codec::kBlock * p.scale_col_stride;
  const float scale = Codec::decode_scale(static_cast<const typename Codec::Stored*>(p.scales)[scale_at]);
  constexpr int kPerByte = Codec::kPacked ? 2 : 1;
  const std::int64_t row_bytes = p.cols / kPerByte;
  TETRAD_UNROLL_ON_DEVICE
  for (int b = 0; b < 16 / kPerByte; ++b) {
    const std::int64_t byte_col = col / kPerByte + b;
    const std::uint32_t byte =
        p.codes[p.order == CodeOrder::row_major ? row * row_bytes + byte_col : byte_col * p.rows + row];
    if constexpr (Codec::kPacked) {
      out[2 * b] = Codec::Element::decode(unpack_e2m1_even(byte)) * scale * factor;
      out[2 * b + 1] = Codec::Element::decode(unpack_e2m1_odd(byte)) * scale * factor;
    } else {
      out[b] = Codec::Element::decode(byte) * scale * factor;
    }
  }
}

/// Four bytes of a row-major NVFP4 tensor, those of eight columns of one row: code x scale, as pairs of
/// columns. `scale` is the block's, twice.
struct ExpandedRow {
  std::uint32_t pairs[4];
};
TETRAD_HD inline ExpandedRow expand_row(std::uint32_t codes, std::uint32_t scale) {
  ExpandedRow result;
  TETRAD_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t four = codes >> (16 * half) & 0xFFFFu;
    const DecodedBytes values = decode_four(four & 0x7777u);
    const std::uint32_t signs_01 = (four & 0x8u) << 12 | (four & 0x80u) << 24;
    const std::uint32_t signs_23 = (four & 0x800u) << 4 | (four & 0x8000u) << 16;
    result.pairs[2 * half] = mul_pairs(pair_01(values), scale) | signs_01;
    result.pairs[2 * half + 1] = mul_pairs(pair_23(values), scale) | signs_23;
  }
  return result;
}

/// Four bytes of a column-major NVFP4 tensor, those of four rows: code x scale of the even and of the odd
/// column, as pairs of rows. `scales` are pairs of rows too.
struct ExpandedWord {
  std::uint32_t even[2], odd[2];
};
TETRAD_HD inline ExpandedWord expand_word(std::uint32_t codes, const std::uint32_t (&scales)[2]) {
  ExpandedWord result;
  TETRAD_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half) {
    const DecodedBytes values = decode_four((codes & 0x77777777u) >> (16 * half) & 0xFFFFu);
    const std::uint32_t to_high_bytes = half == 0 ? 0x1404u : 0x3424u;
    const std::uint32_t even_signs = byte_perm(codes << 4, 0u, to_high_bytes);
    const std::uint32_t odd_signs = byte_perm(codes, 0u, to_high_bytes);
    result.even[half] = mul_pairs(pair_02(values), scales[half]) | (even_signs & kSignsOfPair);
    result.odd[half] = mul_pairs(pair_13(values), scales[half]) | (odd_signs & kSignsOfPair);
  }
  return result;
}

/// The scales of four rows, as pairs.
TETRAD_HD inline void expand_scales(std::uint32_t bytes, std::uint32_t (&scales)[2]) {
  TETRAD_UNROLL_ON_DEVICE
  for (int half = 0; half < 2; ++half)
    scales[half] =
        pack_bf16(E4m3::decode(bytes >> (16 * half) & 0xFFu), E4m3::decode(bytes >> (16 * half + 8) & 0xFFu));
}

}  // namespace tetrad::cuda
