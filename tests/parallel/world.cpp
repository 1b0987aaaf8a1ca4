// SPDX-License-Identifier: Apache-2.0
// The main() of the tests of several ranks. `--largest-message=BYTES` cuts what MPI sends.

#include "parallel/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string_view>

#include "support/backends.h"
#include "tetrad/core/error.h"
#include "tetrad/parallel/launch.h"
#include "tetrad/parallel/mpi_communicator.h"
#include "tetrad/parallel/staged_communicator.h"

namespace tetrad::testing {
namespace {

std::unique_ptr<Communicator>& owned_world() {
  static std::unique_ptr<Communicator> world;
  return world;
}

}  // namespace

Communicator& world() { return *owned_world(); }

std::vector<std::string> transport_names() {
#if defined(TETRAD_GPU_TESTS)
  return {"host", "host-staged", "cuda host-staged", "cuda nccl"};
#else
  return {"host", "host-staged"};
#endif
}

Connected connect(const std::string& transport) {
  std::vector<int> all(static_cast<std::size_t>(world().size()));
  std::iota(all.begin(), all.end(), 0);
  Backend& backend = transport.starts_with("cuda") ? device_backend() : cpu_backend();
  std::unique_ptr<Communicator> ranks = world().among(all);
  if (transport == "host") return {backend, std::move(ranks)};
  if (transport == "host-staged") return {backend, make_staged_communicator(std::move(ranks), backend)};
  return {backend, make_communicator(std::move(ranks), backend,
                                     transport == "cuda nccl" ? Transport::best : Transport::host_staged)};
}

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kOption = "--largest-message=";
  const std::string_view option = argc > 1 ? argv[1] : "";
  owned_world() =
      option.starts_with(kOption)
          ? make_mpi_communicator({.largest_message = std::stoul(std::string(option.substr(kOption.size())))})
          : make_world();
#if defined(TETRAD_GPU_TESTS)
  // NCCL takes several ranks on one GPU only if it believes them to be on different machines.
  ::setenv("NCCL_HOSTID", std::to_string(world().rank()).c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);                             // NOLINT(concurrency-mt-unsafe)
#endif
  const int result = RUN_ALL_TESTS();
  owned_world() = nullptr;
  return result;
}

}  // namespace tetrad::testing

int main(int argc, char** argv) {
  try {
    return tetrad::testing::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
