// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of files to f32 and back.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tetrad/core/dtype.h"
#include "tetrad/core/threads.h"

namespace tetrad {

/// BF16, F16 and F32 are what weights are stored as.
bool is_float_weight(DType dtype);

/// Exact. `bytes` need not be aligned.
void decode_values(Threads& threads, DType dtype, std::span<const std::byte> bytes, std::span<float> out);

/// Rounded to nearest even. Returns whether every value has a finite result.
bool encode_values(Threads& threads, std::span<const float> values, DType dtype, std::span<std::byte> out);

/// An NVFP4 matrix whose rows are whole blocks: code * block scale * `scale`. `codes` have the even element
/// in the low nibble, `scales` are E4M3; one of them that is NaN makes its 16 values NaN.
void decode_nvfp4(Threads& threads, std::span<const std::byte> codes, std::span<const std::byte> scales,
                  float scale, std::span<float> out);

inline constexpr std::int64_t kGgmlNvfp4Values =
    64;  //!< values in a block of GGUF: 4 scales of 16 values each …
inline constexpr std::int64_t kGgmlNvfp4Bytes = 36;  //!< … and their codes

/// The scales first, then for each run of 16 values the codes j and j + 8 in one byte.
void pack_ggml_block(const std::byte* codes, const std::byte* scales, std::byte* block);
void unpack_ggml_block(const std::byte* block, std::byte* codes, std::byte* scales);

}  // namespace tetrad
