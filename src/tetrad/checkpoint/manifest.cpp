// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "tetrad/checkpoint/run_identity.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "tetrad-checkpoint";
constexpr std::uint64_t kVersion = 2;
constexpr std::uint64_t kVersionWithoutRun = 1;  //!< 0.1.0's
constexpr std::size_t kHexDigits = 64;
constexpr std::string_view kSealBefore = ",\"sha256\":\"";
constexpr std::string_view kSealAfter = "\"}\n";

/// The end of the text: the hash over everything before it.
std::string seal_of(std::string_view content) {
  return fmt::format("{}{}{}", kSealBefore, sha256_hex(std::as_bytes(std::span(content))), kSealAfter);
}

std::uint64_t whole_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  TETRAD_CHECK(found != object.end() && found->is_number_unsigned() &&
                   found->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()},
               "{} has no field {:?} with a whole number from 0 to 2^63 - 1", kManifestName, key);
  return found->get<std::uint64_t>();
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  TETRAD_CHECK(found != object.end() && found->is_string(), "{} has no field {:?} with a text", kManifestName,
               key);
  return found->get<std::string>();
}

bool is_hash(std::string_view text) {
  return text.size() == kHexDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

ManifestFile parse_file(const Json& entry) {
  TETRAD_CHECK(entry.is_object(), "{}: an element of \"files\" is not an object", kManifestName);
  ManifestFile file{text(entry, "name"), whole_number(entry, "bytes"), text(entry, "sha256")};
  TETRAD_CHECK(is_checkpoint_file_name(file.name), "{} names the file {}, which cannot be of a checkpoint",
               kManifestName, quoted_name(file.name));
  TETRAD_CHECK(is_hash(file.sha256), "{}: the sha256 of {} is not 64 hexadecimal digits", kManifestName,
               file.name);
  return file;
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  constexpr std::size_t kMaxName = 128;
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' && name != kManifestName &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::string manifest_text(const Manifest& manifest) {
  const bool has_run = !manifest.run.empty();
  std::string content =
      fmt::format("{{\"format\":\"{}\",\"version\":{},\"step\":{},\"build\":{},{}\"files\":[", kFormat,
                  has_run ? kVersion : kVersionWithoutRun, manifest.step, Json(manifest.build).dump(),
                  has_run ? fmt::format("\"run\":{},", Json(manifest.run).dump()) : "");
  std::string_view separator = "\n";
  for (const ManifestFile& file : manifest.files) {
    content += fmt::format(R"({}{{"name":"{}","bytes":{},"sha256":"{}"}})", separator, file.name, file.bytes,
                           file.sha256);
    separator = ",\n";
  }
  content += "\n]";
  return content + seal_of(content);
}

Manifest parse_manifest(std::string_view text_in) {
  constexpr std::size_t kSealBytes = kSealBefore.size() + kHexDigits + kSealAfter.size();
  TETRAD_CHECK(text_in.size() > kSealBytes && text_in.size() <= kManifestMaxBytes,
               "{} has {} bytes; it is cut short, or not of a checkpoint", kManifestName, text_in.size());
  const std::string_view content = text_in.substr(0, text_in.size() - kSealBytes);
  TETRAD_CHECK(text_in.substr(content.size()) == seal_of(content),
               "{} is damaged: it does not end with the hash of its content", kManifestName);

  // From here on only something that was sealed on purpose is seen, which may still be anything.
  const Json json = Json::parse(text_in, nullptr, false);
  TETRAD_CHECK(json.is_object(), "{} is not a JSON object", kManifestName);
  TETRAD_CHECK(text(json, "format") == kFormat, "{} is not of a checkpoint of Tetrad", kManifestName);
  const std::uint64_t version = whole_number(json, "version");
  TETRAD_CHECK(
      version == kVersion || version == kVersionWithoutRun,
      "{} has version {}, but this program reads versions up to {}; use the version of Tetrad that wrote it",
      kManifestName, version, kVersion);

  Manifest manifest;
  manifest.step = static_cast<std::int64_t>(whole_number(json, "step"));
  manifest.build = text(json, "build");
  if (version == kVersion) {
    manifest.run = text(json, "run");
    TETRAD_CHECK(is_run_id(manifest.run), "{}: \"run\" is not the id of a run", kManifestName);
  }
  const auto files = json.find("files");
  TETRAD_CHECK(files != json.end() && files->is_array() && !files->empty(), "{} lists no files",
               kManifestName);
  for (const Json& entry : *files) manifest.files.push_back(parse_file(entry));
  const auto unordered =
      std::ranges::adjacent_find(manifest.files, std::ranges::greater_equal(), &ManifestFile::name);
  TETRAD_CHECK(unordered == manifest.files.end(), "{} lists the file {} twice, or out of order",
               kManifestName, unordered->name);
  TETRAD_CHECK(manifest_text(manifest) == text_in, "{} holds more than the fields that belong there",
               kManifestName);
  return manifest;
}

}  // namespace tetrad
