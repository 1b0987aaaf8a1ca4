// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF files: a reader that trusts nothing.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "tetrad/interchange/gguf_format.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {

/// What stands in front of the data.
struct GgufHeader {
  struct Place {
    GgufTensor tensor;
    std::uint64_t begin = 0;  //!< within the file
    std::uint64_t bytes = 0;
  };
  std::string where;                                       //!< for messages
  std::map<std::string, GgufValue, std::less<>> metadata;  //!< only kinds that we read
  std::map<std::string, Place, std::less<>> tensors;

  /// nullptr: there is no such key, or its value is of another kind.
  template <typename T>
  const T* find(std::string_view key) const {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : std::get_if<T>(&found->second);
  }
  /// nullptr: there is no such tensor.
  const GgufTensor* find_tensor(std::string_view name) const;
};

/// Parses the whole file in `file`: every tensor lies in it, and no two overlap. Throws Error (bad input)
/// that begins with `where`; what it allocates is bounded by the size of `file`.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

/// By its first bytes.
bool is_gguf_file(const std::filesystem::path& path);

/// An open file, everything in front of the data checked against its size.
class GgufFile {
 public:
  /// Throws Error (bad input).
  explicit GgufFile(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }
  /// The tensor must exist.
  std::span<const std::byte> bytes(std::string_view name) const;

 private:
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace tetrad
