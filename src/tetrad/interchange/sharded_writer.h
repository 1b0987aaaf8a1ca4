// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model's tensors in one safetensors file, or in shards with an index.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/io/safetensors.h"

namespace tetrad {

inline constexpr std::uint64_t kShardBytes = 5'000'000'000;  //!< what shards have elsewhere
inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// One tensor is in memory, and one file open, at a time.
class ShardedWriter {
 public:
  /// Tensors go to shards in the order of their declarations; one that is larger than `shard_bytes` has a
  /// shard of its own.
  ShardedWriter(std::filesystem::path folder, const std::vector<TensorDeclaration>& tensors,
                std::uint64_t shard_bytes);

  /// Each declared tensor, in the order of the declarations.
  void write(const std::string& name, std::span<const std::byte> bytes);
  /// Finishes the last file, and then the index.
  void commit();

  std::uint64_t total_bytes() const { return total_bytes_; }
  std::size_t shards() const { return shards_.size(); }

 private:
  std::string file_name(std::size_t shard) const;
  void close_file();

  std::filesystem::path folder_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::vector<TensorDeclaration>> shards_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;  //!< by tensor
  std::size_t current_ = 0;                                   //!< shard
  std::unique_ptr<SafetensorsWriter> file_;  //!< the current shard; null before its first tensor
};

}  // namespace tetrad
