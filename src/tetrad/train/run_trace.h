// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the time of a run's first steps goes: a file for chrome://tracing and Perfetto, and ranges for the
// profilers of the device (NVTX). Ranks are processes there, and each way between them is a line of its own
// beside what a rank computes.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tetrad/core/trace.h"
#include "tetrad/ops/backend.h"
#include "tetrad/parallel/routes.h"

namespace tetrad {

class RunTrace final : public Trace {
 public:
  /// The file appears with write(). All ranks make one at the same time.
  RunTrace(Backend& backend, Routes& routes, std::filesystem::path file);
  ~RunTrace() override;

  /// Waits for the device at the end of each part, so that it has its whole time; not for what is between
  /// ranks.
  void begin(const std::string& name) override;
  void end() override;

  /// All ranks call this; the first writes what all have seen. Throws Error if the file cannot be written.
  void write();

 private:
  /// What passes between ranks one way.
  class Lane final : public CollectiveListener {
   public:
    Lane(RunTrace& trace, std::string name, std::size_t line)
        : trace_(trace), name_(std::move(name)), line_(line) {}
    void began(const CollectiveCall& call) override;
    void ended(const CollectiveCall& call) override;
    const std::string& name() const { return name_; }

   private:
    RunTrace& trace_;
    std::string name_;
    std::size_t line_;
    std::map<std::uint64_t, std::size_t> open_;  //!< of parts_, by the number of the collective
  };

  struct Part {
    std::string name;
    std::size_t line = 0;  //!< 0: what is computed
    double begin = 0;      //!< seconds
    double end = 0;
  };

  double now() const;
  /// Returns its index.
  std::size_t begin_part(std::string name, std::size_t line);
  void end_part(std::size_t index);
  std::string events() const;

  Backend& backend_;
  Routes& routes_;
  std::filesystem::path file_;
  double start_;
  std::vector<std::size_t> open_;  //!< of parts_
  std::vector<std::unique_ptr<Lane>> lanes_;
  mutable std::mutex mutex_;  //!< of what follows
  std::vector<Part> parts_;
};

}  // namespace tetrad
