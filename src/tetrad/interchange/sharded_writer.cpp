// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/sharded_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/core/error.h"

namespace tetrad {

ShardedWriter::ShardedWriter(std::filesystem::path folder, const std::vector<TensorDeclaration>& tensors,
                             std::uint64_t shard_bytes)
    : folder_(std::move(folder)), shards_(1) {
  std::uint64_t filled = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::uint64_t bytes = checked_tensor_bytes(tensor.name, tensor.dtype, tensor.shape);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards_.emplace_back();
      filled = 0;
    }
    shards_.back().push_back(tensor);
    shard_of_[tensor.name] = shards_.size() - 1;
    filled += bytes;
    total_bytes_ += bytes;
  }
}

std::string ShardedWriter::file_name(std::size_t shard) const {
  if (shards_.size() == 1) return kSingleFile;
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards_.size());
}

void ShardedWriter::close_file() {
  if (file_) file_->commit();
  file_.reset();
}

void ShardedWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const auto shard = shard_of_.find(name);
  if (shard == shard_of_.end() || shard->second < current_)
    throw Error(fmt::format("{} is written out of turn; this is a bug of the caller", quoted_name(name)),
                ExitCode::failure);
  if (shard->second != current_) close_file();
  current_ = shard->second;
  if (!file_) file_ = std::make_unique<SafetensorsWriter>(folder_ / file_name(current_), shards_[current_]);
  file_->write(name, bytes);
}

void ShardedWriter::commit() {
  close_file();
  if (shards_.size() == 1) return;
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes_}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (const auto& [tensor, shard] : shard_of_) index["weight_map"][tensor] = file_name(shard);
  write_file_atomically(folder_ / kIndexFile, index.dump(2) + "\n");
}

}  // namespace tetrad
