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

/// Tensors are written in any order; what is in memory is the one that is being written.
class ShardedWriter {
 public:
  /// Tensors go to shards in the order of their declarations; one that is larger than `shard_bytes` has a
  /// shard of its own.
  ShardedWriter(std::filesystem::path folder, const std::vector<TensorDeclaration>& tensors,
                std::uint64_t shard_bytes);

  void write(const std::string& name, std::span<const std::byte> bytes);
  /// Finishes all files; the index comes last.
  void commit();

  std::uint64_t total_bytes() const { return total_bytes_; }
  std::size_t shards() const { return files_.size(); }

 private:
  std::filesystem::path folder_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::string> names_;  //!< of the files
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;  //!< by tensor
};

}  // namespace tetrad
