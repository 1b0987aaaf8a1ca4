// SPDX-License-Identifier: Apache-2.0
#pragma once
// SIGINT and SIGTERM ask a run to finish its step and save; a second one ends the process at once.

namespace tetrad {

class StopSignals {
 public:
  /// Installs the handlers; the destructor puts the old ones back. One at a time.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  bool received() const;
};

}  // namespace tetrad
