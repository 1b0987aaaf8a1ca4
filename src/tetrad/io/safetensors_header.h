// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header of a safetensors file: u64 N (little endian), N bytes of JSON, then the data section.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/core/dtype.h"

namespace tetrad {

inline constexpr std::uint64_t kSafetensorsPrefixBytes = 8;  //!< The N in front of the JSON.
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kSafetensorsMaxRank = 64;
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  //!< Empty for a scalar.
  std::uint64_t begin = 0;          //!< Within the data section.
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;   //!< In the order of their offsets.
  std::vector<std::size_t> by_name;  //!< Indices into `tensors`, in the order of the names.
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  //!< Where the data section begins, within the file.

  /// nullptr if there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
};

/// Reads and checks the header of the whole file in `file`, and that its tensors fill the data section
/// exactly. Throws Error (bad input) for anything else; what it allocates is bounded by the size of `file`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view name_for_messages);

/// Bytes of a tensor. Throws Error (bad input) that begins with `where` if the shape has a negative extent,
/// too many extents, more bytes than can be counted, or does not fill whole bytes.
std::uint64_t checked_tensor_bytes(std::string_view where, DType dtype, std::span<const std::int64_t> shape);

/// Offset of the first byte that is not part of valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// A name from outside, fit for a message: quoted, control characters escaped, cut if very long.
std::string quoted_name(std::string_view name);

}  // namespace tetrad
