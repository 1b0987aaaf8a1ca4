#pragma once
// GGUF, version 3: magic, counts, metadata, descriptions of tensors, then their data, each aligned to 32
// bytes. Everything is little-endian.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tetrad/io/atomic_file.h"
#include "tetrad/io/mapped_file.h"

namespace tetrad {

enum class GgmlType : std::uint32_t { f32 = 0, f16 = 1, bf16 = 30, nvfp4 = 40 };

inline constexpr std::int64_t kGgmlNvfp4Values = 64;  //!< of a block: 4 scales of 16 values each …
inline constexpr std::int64_t kGgmlNvfp4Bytes = 36;   //!< … and their codes

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

/// One file, which appears whole or not at all.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& target, const GgufMetadata& metadata,
             const std::vector<GgufTensor>& tensors);

  /// Each declared tensor once, in any order.
  void write(const std::string& name, std::span<const std::byte> bytes);
  void commit();

  std::uint64_t bytes() const { return end_; }

 private:
  struct Slot {
    std::uint64_t begin;  //!< within the file
    std::uint64_t bytes;
    bool written;
  };

  AtomicFile file_;
  std::map<std::string, Slot, std::less<>> slots_;
  std::uint64_t end_ = 0;
};

/// What stands in front of the data.
struct GgufHeader {
  struct Place {
    GgufTensor tensor;
    std::uint64_t begin = 0;  //!< within the file
    std::uint64_t bytes = 0;
  };
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, Place, std::less<>> tensors;
};

/// Of the whole file in `file`: every tensor lies in it. Throws Error (bad input) that begins with `where`;
/// what it allocates is bounded by the size of `file`.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

/// An open file, everything in front of the data checked against its size.
class GgufFile {
 public:
  /// Throws Error (bad input).
  explicit GgufFile(const std::filesystem::path& path);

  /// nullptr: there is no such key, or its value is of a kind that we do not read.
  const GgufValue* find(std::string_view key) const;
  /// nullptr: there is no such tensor.
  const GgufTensor* find_tensor(std::string_view name) const;
  std::span<const std::byte> bytes(std::string_view name) const;
  std::vector<std::string> tensor_names() const;
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  MappedFile file_;
  GgufHeader header_;
};

}  // namespace tetrad
