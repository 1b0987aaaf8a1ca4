// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/tensor_folder.h"

#include <nlohmann/json.hpp>
#include <set>

#include "tetrad/core/error.h"
#include "tetrad/interchange/sharded_writer.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// A file of this very folder.
void check_shard_name(const std::string& where, const std::string& name) {
  const bool is_plain = !name.empty() && name.front() != '.' &&
                        name.find_first_of("/\\") == std::string::npos &&
                        name.find('\0') == std::string::npos && name.ends_with(".safetensors");
  TETRAD_CHECK(is_plain,
               "{}: {} is no name of a shard: only files beside the index, named *.safetensors, are read",
               where, quoted_name(name));
}

}  // namespace

TensorFolder::TensorFolder(const fs::path& folder) : where_(fmt::format("{:?}", folder.native())) {
  std::error_code ignored;
  TETRAD_CHECK(fs::is_directory(folder, ignored), "{} is not a folder; name the one that config.json is in",
               where_);
  if (fs::exists(folder / kIndexFile, ignored))
    open_shards(folder);
  else
    open_single(folder);
}

void TensorFolder::open_single(const fs::path& folder) {
  std::error_code ignored;
  TETRAD_CHECK(fs::exists(folder / kSingleFile, ignored),
               "{} has neither {} nor {}: only safetensors are read; save the model so", where_, kSingleFile,
               kIndexFile);
  files_.push_back(std::make_unique<SafetensorsFile>(folder / kSingleFile));
  for (const TensorInfo& info : files_.back()->tensors()) add(*files_.back(), info);
}

void TensorFolder::open_shards(const fs::path& folder) {
  const std::string where = fmt::format("{:?}", (folder / kIndexFile).native());
  const nlohmann::json index = read_strict_json(folder / kIndexFile, {std::size_t{64} << 20, 8});
  const nlohmann::json& map = member_of(index, "weight_map");
  TETRAD_CHECK(map.is_object() && !map.empty(), "{}: weight_map is missing: fetch the file again", where);
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, file] : map.items()) {
    TETRAD_CHECK(file.is_string(), "{}: the shard of {} is not a name", where, quoted_name(tensor));
    check_shard_name(where, file.get_ref<const std::string&>());
    shards[file.get<std::string>()].insert(tensor);
  }
  for (const auto& [name, listed] : shards) {
    std::error_code ignored;
    TETRAD_CHECK(fs::exists(folder / name, ignored), "{}: the shard {} is missing: fetch it again", where_,
                 quoted_name(name));
    files_.push_back(std::make_unique<SafetensorsFile>(folder / name));
    for (const std::string& tensor : listed)
      TETRAD_CHECK(files_.back()->find(tensor) != nullptr,
                   "{}: {} should hold the tensor {} and does not: fetch both again", where,
                   quoted_name(name), quoted_name(tensor));
    for (const TensorInfo& info : files_.back()->tensors()) {
      TETRAD_CHECK(listed.contains(info.name),
                   "{}: {} holds the tensor {}, which the index does not list there: fetch both again", where,
                   quoted_name(name), quoted_name(info.name));
      add(*files_.back(), info);
    }
  }
}

void TensorFolder::add(const SafetensorsFile& file, const TensorInfo& info) {
  tensors_[info.name] = {&file, &info};
}

const TensorInfo* TensorFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.info;
}

std::span<const std::byte> TensorFolder::bytes(std::string_view name,
                                               std::vector<std::byte>& /*memory*/) const {
  const Place& place = tensors_.find(name)->second;
  return place.file->bytes(*place.info);
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

}  // namespace tetrad
