// SPDX-License-Identifier: Apache-2.0
#include "tetrad/compare/machine.h"
#include "tetrad/io/json_text.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"

namespace tetrad {
namespace {

std::filesystem::path file_in(const std::filesystem::path& trial_folder) {
  return trial_folder / "machine.json";
}

}  // namespace

void write_machine(const std::filesystem::path& trial_folder, const Machine& machine) {
  const nlohmann::json json = {{"backend", machine.backend},
                               {"device", machine.device},
                               {"threads", machine.threads},
                               {"peak_tflops", machine.peak_tflops},
                               {"peak_name", machine.peak_name}};
  write_file_atomically(file_in(trial_folder), json_text(json, 2) + "\n");
}

std::optional<Machine> read_machine(const std::filesystem::path& trial_folder) {
  std::ifstream stream(file_in(trial_folder));
  if (!stream) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(stream);
    return Machine{json.at("backend"), json.at("device"), json.at("threads"), json.at("peak_tflops"),
                   json.at("peak_name")};
  } catch (const nlohmann::json::exception& error) {
    fail("{} cannot be used ({}); remove it, and the report leaves out what it says",
         file_in(trial_folder).string(), error.what());
  }
}

}  // namespace tetrad
