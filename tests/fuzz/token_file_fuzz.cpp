// Any pair of files is a sound token file or refused as bad input. The input is the .bin; if it begins with
// "IDX" and a number of 16 bits, so many bytes behind it are the .idx and the rest is the .bin.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/data/token_file.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tetrad::testing::TemporaryFolder folder(tetrad::testing::memory_folder());
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ::unlink((folder / "a.idx").c_str());
  constexpr std::string_view kMark = "IDX";
  if (bytes.size() >= kMark.size() + 2 && bytes.starts_with(kMark)) {
    const std::size_t length = std::size_t{data[3]} | std::size_t{data[4]} << 8;
    bytes.remove_prefix(kMark.size() + 2);
    tetrad::testing::write_file(folder / "a.idx", bytes.substr(0, length));
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  tetrad::testing::write_file(folder / "a.bin", bytes);
  try {
    const tetrad::TokenFile file(folder.file("a.bin"));
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
    file.read(0, tokens);
    const auto ends = file.document_ends();
    if (!ends.empty() && ends.back() != file.size()) std::abort();
    const auto range = file.id_range();
    file.validate(1000);
    if (range.lowest < -1 || range.highest >= 1000) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
