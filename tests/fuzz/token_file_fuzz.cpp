// SPDX-License-Identifier: Apache-2.0
// Any pair of files is a sound token file or refused. The input is the .bin; if it begins with "IDX" and a
// number of 16 bits, so many bytes behind it are the .idx and the rest is the .bin.

#include <unistd.h>

#include <algorithm>

#include "fuzz/targets.h"
#include "support/files.h"
#include "support/one_thread.h"
#include "tetrad/data/token_file.h"

namespace tetrad::testing {

void fuzz_token_file(std::string_view bytes) {
  static const TemporaryFolder folder(memory_folder());
  constexpr std::string_view kMark = "IDX";
  constexpr std::int64_t kVocab = 1000;
  ::unlink((folder / "a.idx").c_str());
  if (bytes.size() >= kMark.size() + 2 && bytes.starts_with(kMark)) {
    const std::size_t length =
        static_cast<std::uint8_t>(bytes[3]) | std::size_t{static_cast<std::uint8_t>(bytes[4])} << 8;
    bytes.remove_prefix(kMark.size() + 2);
    write_file(folder / "a.idx", bytes.substr(0, length));
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  write_file(folder / "a.bin", bytes);
  read_or_refuse([&] {
    const TokenFile file(folder.file("a.bin"));
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
    file.read(0, tokens);
    const auto ends = file.document_ends();
    require(ends.empty() ? file.size() == 0 : ends.back() == file.size());
    const auto range = file.survey(one_thread()).range;
    file.validate(one_thread(), kVocab);
    require(range.lowest >= -1 && range.highest < kVocab);
  });
}

}  // namespace tetrad::testing
