// SPDX-License-Identifier: Apache-2.0
// Fuzz targets without a fuzzer: over their seeds, all beginnings of these, and seeds with one byte changed.
// Failing means crashing, or a throw that the target does not expect.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "support/files.h"

namespace tetrad::testing {

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name; }

namespace {

class Fuzz : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  static void run(std::string_view input) {
    // A copy of exactly this size, so that sanitizers see a read past its end.
    const std::vector<char> bytes(input.begin(), input.end());
    EXPECT_NO_THROW(GetParam().run({bytes.data(), bytes.size()})) << input;
  }

  static std::vector<std::string> seeds() {
    std::vector<std::string> result;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(TETRAD_CORPUS) / GetParam().name))
      result.push_back(read_file(entry.path()));
    return result;
  }
};

TEST_P(Fuzz, Seeds) {
  ASSERT_FALSE(seeds().empty());
  for (const std::string& seed : seeds()) run(seed);
}

TEST_P(Fuzz, BeginningsOfSeeds) {
  for (const std::string& seed : seeds())
    for (std::size_t size = 0; size < seed.size(); ++size) run(std::string_view(seed).substr(0, size));
}

TEST_P(Fuzz, SeedsWithOneByteChanged) {
  for (const std::string& seed : seeds())
    for (std::size_t at = 0; at < seed.size(); ++at)
      for (const char byte : {'\0', '\n', '"', '9', '-', '\x80', '\xFF'}) {
        std::string changed = seed;
        changed[at] = byte;
        run(changed);
      }
}

INSTANTIATE_TEST_SUITE_P(Of, Fuzz, ::testing::ValuesIn(fuzz_targets()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(FuzzCorpus, EveryFolderHasATarget) {
  for (const auto& entry : std::filesystem::directory_iterator(TETRAD_CORPUS))
    EXPECT_NE(std::ranges::find(fuzz_targets(), entry.path().filename().string(), &FuzzTarget::name),
              fuzz_targets().end())
        << entry.path();
}

}  // namespace
}  // namespace tetrad::testing
