// A fuzz target without a fuzzer: over its seeds, all their beginnings, and seeds with one byte changed.
// Failing means crashing, or a throw that the target does not expect.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"

// NOLINTNEXTLINE(readability-identifier-naming,readability-redundant-declaration): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tetrad::testing {
namespace {

void run(const std::string& input) {
  // A copy of exactly this size, so that sanitizers see a read past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(TETRAD_CORPUS))
    result.push_back(read_file(entry.path()));
  return result;
}

TEST(Fuzz, Seeds) {
  ASSERT_FALSE(seeds().empty());
  for (const std::string& seed : seeds()) run(seed);
}

TEST(Fuzz, BeginningsOfSeeds) {
  for (const std::string& seed : seeds())
    for (std::size_t size = 0; size < seed.size(); ++size) run(seed.substr(0, size));
}

TEST(Fuzz, SeedsWithOneByteChanged) {
  for (const std::string& seed : seeds())
    for (std::size_t at = 0; at < seed.size(); ++at)
      for (const char byte : {'\0', '\n', '"', '9', '-', '\x80', '\xFF'}) {
        std::string changed = seed;
        changed[at] = byte;
        run(changed);
      }
}

}  // namespace
}  // namespace tetrad::testing
