// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the time of a run's first steps goes: a file for chrome://tracing and Perfetto, and ranges for the
// profilers of the device (NVTX).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tetrad/core/trace.h"
#include "tetrad/ops/backend.h"

namespace tetrad {

class RunTrace final : public Trace {
 public:
  /// The file appears with write().
  RunTrace(Backend& backend, std::filesystem::path file);

  /// Waits for the device at the end of each part, so that it has its whole time.
  void begin(const std::string& name) override;
  void end() override;

  /// Throws Error if the file cannot be written.
  void write() const;

 private:
  struct Part {
    std::string name;
    double begin = 0;  //!< seconds
    double end = 0;
  };

  Backend& backend_;
  std::filesystem::path file_;
  double start_;
  std::vector<Part> parts_;
  std::vector<std::size_t> open_;  //!< of parts_
};

}  // namespace tetrad
