// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a Hugging Face folder: model.safetensors, or the shards that an index lists.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/io/safetensors.h"

namespace tetrad {

class TensorFolder {
 public:
  /// Every header is read and checked, no data. Throws Error (bad input): there are no tensors, a shard is
  /// missing, has a name that leads out of the folder, or does not hold what the index says.
  explicit TensorFolder(const std::filesystem::path& folder);

  /// nullptr: there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  /// Throws Error (bad input) that names the tensor if it is not there or has another shape.
  const TensorInfo& get(std::string_view name, const std::vector<std::int64_t>& shape) const;
  /// The tensor must exist.
  std::span<const std::byte> bytes(std::string_view name) const;

  std::vector<std::string> names() const;  //!< sorted
  const std::string& where() const { return where_; }

 private:
  struct Place {
    const SafetensorsFile* file;
    const TensorInfo* info;
  };

  void open_single(const std::filesystem::path& folder);
  void open_shards(const std::filesystem::path& folder);
  void add(const SafetensorsFile& file, const TensorInfo& info);

  std::string where_;  //!< for messages
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place, std::less<>> tensors_;
};

}  // namespace tetrad
