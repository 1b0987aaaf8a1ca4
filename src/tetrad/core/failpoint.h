// SPDX-License-Identifier: Apache-2.0
#pragma once
// Failpoints: places where a test, or a user who doubts, can make the program die or a system call fail.
// Compiled into every build, so that what is tested is what is shipped; one load and one branch when unused.
//
//   TETRAD_FAILPOINTS="checkpoint.after_rename=kill,file.write=enospc@3" tetrad train …
//
// Actions: `kill` (SIGKILL on itself), `enospc`, `eio`, `enomem` (the call fails with that errno and is not
// made), `slow` (the call is made a moment later), `hang` (the thread stays there for good).
// `@N` acts only at the N-th time the point is reached, counted from 1; without it, every time. `@rankR` acts
// only on rank R of a run of several: `communicator.wait=hang@3@rank2`.
// TETRAD_FAILPOINTS_STRUCK names a file that is created when a point acts: a run may survive it without a
// word.

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace tetrad {

/// Every name there is, so that tests can go through all of them. failpoint() refuses others.
inline constexpr auto kFailpoints = std::to_array<std::string_view>({
    // io/atomic_file: one system call each, in this order
    "file.create",
    "file.write",
    "file.fsync",
    "file.close",
    "file.rename",
    "file.fsync_folder",
    // checkpoint/checkpoint_store: in the order of the protocol
    "checkpoint.thread",  // before the thread that writes begins
    "checkpoint.space",
    "checkpoint.create_folder",
    "checkpoint.write",         // before each file
    "checkpoint.read",          // before each part of a tensor is read
    "checkpoint.all_read",      // before training may change the tensors
    "checkpoint.verify",        // before each file is read again
    "checkpoint.set_aside",     // before an existing checkpoint of the same step is moved out of the way
    "checkpoint.rename",        // before the new one gets its name
    "checkpoint.after_rename",  // before the folder of the checkpoints is flushed
    "checkpoint.retire",        // before an old checkpoint loses its name
    "checkpoint.remove",        // before the files of an old one, or of a dead writer, go
    // io/metrics_log, io/tensorboard
    "metrics.write",
    "events.write",
    "log.write",
    // io/input_file: token files
    "data.read",
    // allocate_on_host() of a backend
    "host.allocate",
    // What lies on the host is copied, or used there: each piece of moments, each part of the residual stream
    "offload.copy",
    // ops/communicator: before a collective begins, and before it is waited for
    "communicator.start",
    "communicator.wait",
    // train/trainer: the loss of the step counts as not finite
    "train.non_finite",
});

namespace detail {
enum class FailpointState : std::uint8_t { unread, off, armed };
extern std::atomic<FailpointState> failpoint_state;
int failpoint_reached(std::string_view name);
}  // namespace detail

/// The errno that the caller has to act on as if its system call had failed with it; 0: go on. Reads the
/// environment at the first call; throws Error (bad input) if TETRAD_FAILPOINTS makes no sense.
inline int failpoint(std::string_view name) {
  if (detail::failpoint_state.load(std::memory_order_acquire) == detail::FailpointState::off) return 0;
  return detail::failpoint_reached(name);
}

/// failpoint() for a condition: sets errno and is true if the call is to fail.
bool failpoint_fails(std::string_view name);

/// Which rank of a run this process is; 0 until somebody says so.
void set_failpoint_rank(int rank);

/// For tests: in the place of the environment, in the same words. Empty: none.
void set_failpoints(std::string_view specification);

/// How often an armed failpoint was reached since it was armed; 0 for one that is not armed.
std::int64_t failpoint_hits(std::string_view name);

}  // namespace tetrad
