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

#include "tetrad/interchange/tensor_table.h"
#include "tetrad/io/safetensors.h"

namespace tetrad {

class TensorFolder final : public TensorTable {
 public:
  /// Every header is read and checked, no data. Throws Error (bad input): there are no tensors, a shard is
  /// missing, has a name that leads out of the folder, or does not hold what the index says.
  explicit TensorFolder(const std::filesystem::path& folder);

  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  const std::string& where() const override { return where_; }
  std::span<const std::byte> bytes(std::string_view name, std::vector<std::byte>& memory) const override;

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
