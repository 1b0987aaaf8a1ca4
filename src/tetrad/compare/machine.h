// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a trial ran on. It is kept beside the trial, since a comparison may go on elsewhere: its report is
// about the machines of its runs, not about the one that writes it.

#include <filesystem>
#include <optional>
#include <string>

namespace tetrad {

struct Machine {
  std::string backend;
  std::string device;
  int threads = 0;         //!< 0: not a processor's
  double peak_tflops = 0;  //!< speed of a large product, measured on that machine
  std::string peak_name;   //!< name of that product
};

void write_machine(const std::filesystem::path& trial_folder, const Machine& machine);

/// Nothing if it was not kept. Throws Error if what was kept cannot be read.
std::optional<Machine> read_machine(const std::filesystem::path& trial_folder);

}  // namespace tetrad
