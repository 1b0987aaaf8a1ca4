// SPDX-License-Identifier: Apache-2.0
#pragma once
// MANIFEST.json of a checkpoint: which files belong to it, how long they are and what their bytes hash to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

inline constexpr std::string_view kManifestName = "MANIFEST.json";
inline constexpr std::size_t kManifestMaxBytes = std::size_t{1} << 20;  //!< suffices for 900 GB

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<std::string> sha256;  //!< of each piece: 64 lower-case hexadecimal digits
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  std::string build;                     //!< which program wrote the checkpoint
  std::string run = {};                  //!< id of its run; empty: of none, or 0.1.0 did not say
  std::uint64_t piece_bytes = 0;         //!< that a hash is of; 0: of the whole file, as up to version 2
  std::vector<ManifestFile> files = {};  //!< by rising name
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// A name that can stand in a manifest: letters, digits, '.', '_', '-'; not hidden, not MANIFEST.json.
bool is_checkpoint_file_name(std::string_view name);

/// The one text for this content. Its last field is the SHA-256 of all that stands before that field.
std::string manifest_text(const Manifest& manifest);

/// Accepts exactly what manifest_text() makes: a changed byte, a field too many or a name that leads out of
/// the folder is refused with Error (bad input), whose message does not repeat the path.
Manifest parse_manifest(std::string_view text);

}  // namespace tetrad
