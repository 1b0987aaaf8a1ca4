// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/launch.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/parallel/mpi_communicator.h"
#include "tetrad/parallel/nccl_communicator.h"
#include "tetrad/parallel/self_communicator.h"
#include "tetrad/parallel/staged_communicator.h"

namespace tetrad {

std::optional<Launched> launched_by(const std::function<const char*(const char*)>& variable) {
  struct Launcher {
    const char* ranks;
    const char* rank;  //!< is set only in what it has started
  };
  // The innermost first: mpirun inside of a job of Slurm says how many it is that matter. MPICH and its kin
  // have PMI_*.
  constexpr auto kLaunchers = std::to_array<Launcher>({{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                                       {"PMI_SIZE", "PMI_RANK"},
                                                       {"SLURM_NTASKS", "SLURM_PROCID"}});
  for (const auto& [ranks, rank] : kLaunchers) {
    const char* const text = variable(ranks);
    if (text == nullptr || variable(rank) == nullptr) continue;
    Launched launched{.ranks = 0, .variable = ranks};
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, launched.ranks);
    TETRAD_CHECK(error == std::errc() && stop == end && launched.ranks >= 1,
                 "{} is {:?}, not a number of ranks", ranks, text);
    return launched;
  }
  return std::nullopt;
}

void refuse_singleton(const std::optional<Launched>& launched, int ranks) {
  if (!launched || launched->ranks == 1 || ranks > 1) return;
  fail(
      "{}={}, but this process sees no other rank, and all of them would train alone into the same files. {} "
      "For a single rank use `mpirun -n 1` or `srun -n 1`",
      launched->variable, launched->ranks,
      mpi_version().empty()
          ? "This build has no MPI: install it (on Debian and Ubuntu libopenmpi-dev) and build again."
          : fmt::format(
                "The launcher does not belong to {}, which this program is built with: use its mpirun, "
                "or the PMI that both know (srun --mpi=pmix; `srun --mpi=list`).",
                mpi_version()));
}

std::unique_ptr<Communicator> make_world() {
  const auto launched =
      launched_by([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  std::unique_ptr<Communicator> world;
  if (launched && !mpi_version().empty())
    world = make_mpi_communicator();
  else
    world = std::make_unique<SelfCommunicator>();
  refuse_singleton(launched, world->size());
  set_failpoint_rank(world->rank());
  return world;
}

std::string host_name() {
  std::string name(HOST_NAME_MAX + 1, '\0');
  if (::gethostname(name.data(), name.size()) != 0) fail_errno("the name of this machine");
  name.resize(std::strlen(name.c_str()));
  return name;
}

bool devices_are_shared() {
  return std::getenv("TETRAD_SHARED_GPU") != nullptr;  // NOLINT(concurrency-mt-unsafe)
}

void refuse_shared_devices(Communicator& world, const std::string& device) {
  const std::string host = host_name();
  const std::vector<std::string> devices = world.share(device.empty() ? "" : host + ", " + device);
  if (devices_are_shared()) return;
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (devices[rank].empty()) continue;
    const auto [owner, is_new] = owners.emplace(devices[rank], rank);
    TETRAD_CHECK(is_new,
                 "ranks {} and {} have the same GPU ({}): start as many ranks on a machine as it has GPUs",
                 owner->second, rank, devices[rank]);
  }
}

Transport wanted_transport() {
  const char* const wanted = std::getenv("TETRAD_TRANSPORT");  // NOLINT(concurrency-mt-unsafe)
  if (wanted == nullptr || std::string_view(wanted) == "best") return Transport::best;
  TETRAD_CHECK(std::string_view(wanted) == "host",
               "TETRAD_TRANSPORT is {:?}; it can be best (NCCL between GPUs) or host (through the memory of "
               "the program)",
               wanted);
  return Transport::host_staged;
}

std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Communicator> world, Backend& backend,
                                                Transport transport) {
  if (backend.device_id().empty()) return world;
  // One rank has nobody to send to, and copies on the device.
  if (transport == Transport::host_staged || world->size() == 1)
    return make_staged_communicator(std::move(world), backend);
  return make_nccl_communicator(std::move(world), backend);
}

std::vector<Property> transports() {
  const auto or_not = [](const std::string& version) {
    return version.empty() ? "not in this build" : version;
  };
  return {{"MPI", or_not(mpi_version())}, {"NCCL", or_not(nccl_version())}};
}

}  // namespace tetrad
