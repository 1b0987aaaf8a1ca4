// SPDX-License-Identifier: Apache-2.0
// Any text is a manifest that names files of its own folder, or refused. The seal would hide everything
// behind it from a fuzzer, so the text is also sealed.

#include <fmt/format.h>

#include <algorithm>

#include "fuzz/targets.h"
#include "support/files.h"
#include "tetrad/checkpoint/manifest.h"
#include "tetrad/io/sha256.h"

namespace tetrad::testing {
namespace {

void check_manifest(std::string_view text) {
  read_or_refuse([&] {
    const Manifest manifest = parse_manifest(text);
    require(manifest_text(manifest) == text);
    require(std::ranges::all_of(manifest.files, is_checkpoint_file_name, &ManifestFile::name));
  });
}

}  // namespace

void fuzz_manifest(std::string_view bytes) {
  check_manifest(bytes);
  check_manifest(fmt::format("{},\"sha256\":\"{}\"}}\n", bytes, sha256_hex(bytes_of(bytes))));
}

}  // namespace tetrad::testing
