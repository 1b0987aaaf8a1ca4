// SPDX-License-Identifier: Apache-2.0
// All targets as one program of libFuzzer: `fuzz TARGET [libFuzzer's arguments]`. Without a target it lists
// them.

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "fuzz/targets.h"

namespace {

const tetrad::testing::FuzzTarget* chosen = nullptr;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,concurrency-mt-unsafe): the names are libFuzzer's, nothing runs
// yet
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const auto targets = tetrad::testing::fuzz_targets();
  if (*argc < 2) {
    for (const auto& target : targets) std::printf("%s\n", target.name.data());
    std::exit(0);
  }
  const auto found = std::ranges::find(targets, (*argv)[1], &tetrad::testing::FuzzTarget::name);
  if (found == targets.end()) {
    std::fprintf(stderr, "fuzz: there is no target %s\n", (*argv)[1]);
    std::exit(2);
  }
  chosen = &*found;
  (*argv)[1] = (*argv)[0];
  ++*argv;
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
// NOLINTEND(readability-identifier-naming,concurrency-mt-unsafe)
