// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/values.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/numerics/bf16.h"
#include "tetrad/numerics/f16.h"
#include "tetrad/numerics/nvfp4.h"

namespace tetrad {
namespace {

constexpr std::int64_t kPiece = 1 << 16;  //!< elements

/// use(first, count) for all pieces of `size` elements, in parallel.
template <typename Use>
void in_pieces(Threads& threads, std::size_t size, const Use& use) {
  const auto total = static_cast<std::int64_t>(size);
  threads.parallel_for(ceil_div(total, kPiece), [&](std::int64_t piece) {
    const std::int64_t first = piece * kPiece;
    use(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(kPiece, total - first)));
  });
}

template <typename Word, typename Decode>
void decode_words(Threads& threads, std::span<const std::byte> bytes, std::span<float> out,
                  const Decode& decode) {
  in_pieces(threads, out.size(), [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      Word word;
      std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
      out[i] = decode(word);
    }
  });
}

template <typename Word, typename Encode>
bool encode_words(Threads& threads, std::span<const float> values, std::span<std::byte> out,
                  const Encode& encode) {
  std::atomic<bool> good = true;
  in_pieces(threads, values.size(), [&](std::size_t first, std::size_t count) {
    bool all = true;
    for (std::size_t i = first; i < first + count; ++i) {
      const auto [word, is_finite] = encode(values[i]);
      std::memcpy(out.data() + i * sizeof(Word), &word, sizeof(Word));
      all = all && is_finite;
    }
    if (!all) good = false;
  });
  return good;
}

template <typename Word>
struct Encoded {
  Word word;
  bool is_finite;
};

[[noreturn]] void unknown(DType dtype) {
  throw Error(fmt::format("weights are not stored as {}; this is a bug of the caller", name_of(dtype)),
              ExitCode::failure);
}

constexpr std::int64_t kGgmlRuns =
    kGgmlNvfp4Values / nvfp4::kBlock;  //!< runs in a block, each with its own scale
constexpr std::int64_t kHalfRun = nvfp4::kBlock / 2;

std::uint32_t code_at(const std::byte* codes, std::int64_t i) {
  const auto pair = std::to_integer<std::uint32_t>(codes[i / 2]);
  return i % 2 == 0 ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
}

}  // namespace

bool is_float_weight(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

void decode_values(Threads& threads, DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(out.data(), bytes.data(), out.size_bytes());
      return;
    case DType::bf16:
      return decode_words<std::uint16_t>(threads, bytes, out,
                                         [](std::uint16_t word) { return Bf16{word}.to_f32(); });
    case DType::f16:
      return decode_words<std::uint16_t>(threads, bytes, out,
                                         [](std::uint16_t word) { return F16::decode(word); });
    default:
      unknown(dtype);
  }
}

bool encode_values(Threads& threads, std::span<const float> values, DType dtype, std::span<std::byte> out) {
  switch (dtype) {
    case DType::f32:
      return encode_words<float>(threads, values, out, [](float value) {
        return Encoded<float>{value, std::isfinite(value)};
      });
    case DType::bf16:
      return encode_words<std::uint16_t>(threads, values, out, [](float value) {
        const Bf16 rounded = Bf16::from_f32(value);
        return Encoded<std::uint16_t>{rounded.bits, std::isfinite(rounded.to_f32())};
      });
    case DType::f16:
      // The cast saturates; what would have become infinite must not become 65504 unnoticed.
      return encode_words<std::uint16_t>(threads, values, out, [](float value) {
        constexpr float kFirstInfinite = 65520.0f;
        return Encoded<std::uint16_t>{static_cast<std::uint16_t>(F16::encode(value)),
                                      std::fabs(value) < kFirstInfinite};
      });
    default:
      unknown(dtype);
  }
}

void decode_nvfp4(Threads& threads, std::span<const std::byte> codes, std::span<const std::byte> scales,
                  float scale, std::span<float> out) {
  in_pieces(threads, out.size(), [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      const std::uint32_t code = code_at(codes.data(), static_cast<std::int64_t>(i));
      const auto byte = std::to_integer<std::uint32_t>(scales[i / nvfp4::kBlock]);
      out[i] = nvfp4::decode_without_tensor_scale(code, byte) * scale;
    }
  });
}

void pack_ggml_block(const std::byte* codes, const std::byte* scales, std::byte* block) {
  std::memcpy(block, scales, kGgmlRuns);
  std::byte* out = block + kGgmlRuns;
  for (std::int64_t run = 0; run < kGgmlRuns; ++run)
    for (std::int64_t j = 0; j < kHalfRun; ++j) {
      const std::int64_t at = run * nvfp4::kBlock + j;
      *out++ = std::byte{pack_e2m1(code_at(codes, at), code_at(codes, at + kHalfRun))};
    }
}

void unpack_ggml_block(const std::byte* block, std::byte* codes, std::byte* scales) {
  std::memcpy(scales, block, kGgmlRuns);
  const std::byte* in = block + kGgmlRuns;
  const auto code = [&](std::int64_t i) {
    const std::int64_t within = i % nvfp4::kBlock;
    const auto pair = std::to_integer<std::uint32_t>(in[i / nvfp4::kBlock * kHalfRun + within % kHalfRun]);
    return within < kHalfRun ? unpack_e2m1_even(pair) : unpack_e2m1_odd(pair);
  };
  for (std::int64_t i = 0; i < kGgmlNvfp4Values; i += 2)
    codes[i / 2] = std::byte{pack_e2m1(code(i), code(i + 1))};
}

}  // namespace tetrad
