// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF, version 3: magic, counts, metadata, descriptions of tensors, then their data, each aligned to 32
// bytes. Everything is little-endian.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tetrad {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint64_t kGgufAlignment = 32;
inline constexpr std::string_view kGgufDamaged =
    "the file is damaged or from a faulty program; export it again";

constexpr std::uint64_t gguf_aligned(std::uint64_t offset) {
  return (offset + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

/// How the file numbers the kinds of metadata.
enum class GgufKind : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  flag = 7,
  text = 8,
  list = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

enum class GgmlType : std::uint32_t { f32 = 0, f16 = 1, bf16 = 30, nvfp4 = 40 };

/// What metadata we read and write: numbers, flags, texts, and lists of those.
using GgufValue = std::variant<std::uint32_t, std::int32_t, float, bool, std::string,
                               std::vector<std::string>, std::vector<std::int32_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::f32;
  std::vector<std::int64_t> shape;  //!< as everywhere here, the fastest dimension last; the file turns it
};

/// Bytes of a tensor. Throws Error (bad input) for one that cannot be, beginning with `where`.
std::uint64_t gguf_tensor_bytes(std::string_view where, const GgufTensor& tensor);

}  // namespace tetrad
