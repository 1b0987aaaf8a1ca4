// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/branch_point.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "tetrad/checkpoint/manifest.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/io/sha256.h"

namespace tetrad {

BranchPoint branch_point(const std::filesystem::path& checkpoint) {
  const MappedFile file(checkpoint / kManifestName);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const Manifest manifest = parse_manifest(text);
  return {manifest.run, manifest.step, sha256_hex(file.bytes()),
          std::filesystem::absolute(checkpoint).lexically_normal().string()};
}

void to_json(nlohmann::json& json, const BranchPoint& point) {
  json = {
      {"run", point.run}, {"step", point.step}, {"sha256", point.sha256}, {"checkpoint", point.checkpoint}};
}

void from_json(const nlohmann::json& json, BranchPoint& point) {
  json.at("run").get_to(point.run);
  json.at("step").get_to(point.step);
  json.at("sha256").get_to(point.sha256);
  json.at("checkpoint").get_to(point.checkpoint);
}

}  // namespace tetrad
