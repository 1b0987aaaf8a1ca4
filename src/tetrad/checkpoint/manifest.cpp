// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/manifest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "tetrad/checkpoint/piece_hashes.h"
#include "tetrad/checkpoint/run_identity.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "tetrad-checkpoint";
constexpr std::uint64_t kVersion = 3;
constexpr std::uint64_t kVersionWithoutPieces = 2;
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

/// `piece_bytes` 0: the hash of the whole file stands by itself.
std::vector<std::string> parse_hashes(const Json& entry, std::uint64_t bytes, std::uint64_t piece_bytes) {
  if (piece_bytes == 0) return {text(entry, "sha256")};
  const auto found = entry.find("sha256");
  TETRAD_CHECK(found != entry.end() && found->is_array() && found->size() == piece_count(bytes, piece_bytes),
               "{} has no field \"sha256\" with one hash for each piece of a file", kManifestName);
  std::vector<std::string> hashes;
  for (const Json& hash : *found) hashes.push_back(hash.is_string() ? hash.get<std::string>() : "");
  return hashes;
}

ManifestFile parse_file(const Json& entry, std::uint64_t piece_bytes) {
  TETRAD_CHECK(entry.is_object(), "{}: an element of \"files\" is not an object", kManifestName);
  ManifestFile file{text(entry, "name"), whole_number(entry, "bytes"), {}};
  TETRAD_CHECK(is_checkpoint_file_name(file.name), "{} names the file {}, which cannot be of a checkpoint",
               kManifestName, quoted_name(file.name));
  file.sha256 = parse_hashes(entry, file.bytes, piece_bytes);
  TETRAD_CHECK(std::ranges::all_of(file.sha256, is_hash), "{}: the sha256 of {} is not 64 hexadecimal digits",
               kManifestName, file.name);
  return file;
}

std::uint64_t version_of(const Manifest& manifest) {
  if (manifest.piece_bytes > 0) return kVersion;
  return manifest.run.empty() ? kVersionWithoutRun : kVersionWithoutPieces;
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  constexpr std::size_t kMaxName = 128;
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' && name != kManifestName &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::string manifest_text(const Manifest& manifest) {
  std::string content = fmt::format("{{\"format\":\"{}\",\"version\":{},\"step\":{},\"build\":{},", kFormat,
                                    version_of(manifest), manifest.step, Json(manifest.build).dump());
  if (!manifest.run.empty()) content += fmt::format("\"run\":{},", Json(manifest.run).dump());
  if (manifest.piece_bytes > 0) content += fmt::format("\"piece_bytes\":{},", manifest.piece_bytes);
  content += "\"files\":[";
  std::string_view separator = "\n";
  for (const ManifestFile& file : manifest.files) {
    const std::string hashes =
        file.sha256.empty() ? "" : fmt::format("\"{}\"", fmt::join(file.sha256, "\",\n\""));
    content += fmt::format(R"({}{{"name":"{}","bytes":{},"sha256":{}}})", separator, file.name, file.bytes,
                           manifest.piece_bytes > 0 ? fmt::format("[{}]", hashes) : hashes);
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
      version >= kVersionWithoutRun && version <= kVersion,
      "{} has version {}, but this program reads versions up to {}; use the version of Tetrad that wrote it",
      kManifestName, version, kVersion);

  Manifest manifest;
  manifest.step = static_cast<std::int64_t>(whole_number(json, "step"));
  manifest.build = text(json, "build");
  if (version == kVersionWithoutPieces || (version == kVersion && json.contains("run"))) {
    manifest.run = text(json, "run");
    TETRAD_CHECK(is_run_id(manifest.run), "{}: \"run\" is not the id of a run", kManifestName);
  }
  if (version == kVersion) {
    manifest.piece_bytes = whole_number(json, "piece_bytes");
    TETRAD_CHECK(manifest.piece_bytes > 0, "{}: \"piece_bytes\" is 0, and pieces are not", kManifestName);
  }
  const auto files = json.find("files");
  TETRAD_CHECK(files != json.end() && files->is_array() && !files->empty(), "{} lists no files",
               kManifestName);
  for (const Json& entry : *files) manifest.files.push_back(parse_file(entry, manifest.piece_bytes));
  const auto unordered =
      std::ranges::adjacent_find(manifest.files, std::ranges::greater_equal(), &ManifestFile::name);
  TETRAD_CHECK(unordered == manifest.files.end(), "{} lists the file {} twice, or out of order",
               kManifestName, unordered->name);
  TETRAD_CHECK(manifest_text(manifest) == text_in, "{} holds more than the fields that belong there",
               kManifestName);
  return manifest;
}

}  // namespace tetrad
