// SPDX-License-Identifier: Apache-2.0
#pragma once
// SIGINT, SIGTERM, SIGHUP, SIGXCPU and SIGUSR2 (which mpirun passes on to all ranks and does not act upon)
// ask the work to stop and save what there is; they are answered at once, and a second one ends the process.
// SIGUSR1 asks a run for a checkpoint. SIGPIPE and SIGXFSZ are ignored, so
// that a reader that went away and a file that may not grow are errors of a write.

namespace tetrad {

class StopSignals {
 public:
  /// Installs the handlers; the destructor puts the old ones back. One at a time. A signal that the process
  /// was started to ignore (nohup) stays ignored.
  /// With `answers`, a signal is answered on stderr.
  explicit StopSignals(bool answers = true);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  bool received() const;

  /// Whether a checkpoint was asked for since the last call.
  bool take_checkpoint_request() const;

  /// How long it will take from a signal to its effect, for the answer; negative: nobody knows.
  void expect_seconds(double seconds) const;
};

}  // namespace tetrad
