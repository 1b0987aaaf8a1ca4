// SPDX-License-Identifier: Apache-2.0
#pragma once
// From how the program was started to communicators: who else is there, and over what they talk.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tetrad/ops/backend.h"
#include "tetrad/ops/communicator.h"

namespace tetrad {

/// What a launcher has said about the run: mpirun, or srun.
struct Launched {
  int ranks = 1;
  std::string variable;  //!< of the environment, that says so
};

/// Nothing where no launcher has started this process. `variable` looks up the environment; null: not set.
std::optional<Launched> launched_by(const std::function<const char*(const char*)>& variable);

/// Throws Error where the launcher has started several ranks that do not see each other: each would train
/// for itself, into the same files.
void refuse_singleton(const std::optional<Launched>& launched, int ranks);

/// All ranks of this launch, on the program's memory: MPI's where a launcher has started them, and otherwise
/// this process alone, which needs no library. Once in a process. Also tells failpoints which rank this is.
std::unique_ptr<Communicator> make_world();

/// The name of this machine.
std::string host_name();

/// Whether the environment has TETRAD_SHARED_GPU, for tests: all ranks of a machine have its first GPU.
bool devices_are_shared();

/// Throws Error on all ranks where two of them have the same device of the same machine and should not.
/// `device` is Backend::device_id(); empty: nothing to refuse.
void refuse_shared_devices(Communicator& world, const std::string& device);

enum class Transport : std::uint8_t {
  best,         //!< the program's memory as it lies, and NCCL on devices
  host_staged,  //!< memory of a device by way of the program's
};

/// What the environment asks for: TETRAD_TRANSPORT=host keeps NCCL out, to see whether a fault is NCCL's.
Transport wanted_transport();

/// The same ranks, on the memory of `backend`, which outlives the result.
std::unique_ptr<Communicator> make_communicator(std::unique_ptr<Communicator> world, Backend& backend,
                                                Transport transport = Transport::best);

/// What there is to reach other ranks with, for `tetrad info`.
std::vector<Property> transports();

}  // namespace tetrad
