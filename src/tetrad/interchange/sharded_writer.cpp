#include "tetrad/interchange/sharded_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace tetrad {

ShardedWriter::ShardedWriter(std::filesystem::path folder, const std::vector<TensorDeclaration>& tensors,
                             std::uint64_t shard_bytes)
    : folder_(std::move(folder)) {
  std::vector<std::vector<TensorDeclaration>> shards(1);
  std::uint64_t filled = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const std::uint64_t bytes = checked_tensor_bytes(tensor.name, tensor.dtype, tensor.shape);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    shard_of_[tensor.name] = shards.size() - 1;
    filled += bytes;
    total_bytes_ += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names_.push_back(shards.size() == 1
                         ? kSingleFile
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    files_.push_back(std::make_unique<SafetensorsWriter>(folder_ / names_.back(), shards[i]));
  }
}

void ShardedWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  files_.at(shard_of_.at(name))->write(name, bytes);
}

void ShardedWriter::commit() {
  for (const auto& file : files_) file->commit();
  if (files_.size() == 1) return;
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total_bytes_}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (const auto& [tensor, shard] : shard_of_) index["weight_map"][tensor] = names_[shard];
  write_file_atomically(folder_ / kIndexFile, index.dump(2) + "\n");
}

}  // namespace tetrad
