// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/origin.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tetrad/core/utc_time.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {
namespace {

/// JSON holds UTF-8 only; a path may be anything.
std::string printable(std::string_view text) {
  return find_invalid_utf8(text) ? fmt::format("{:?}", text) : std::string(text);
}

nlohmann::json command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  nlohmann::json words = nlohmann::json::array();
  for (std::string word; std::getline(file, word, '\0');) words.push_back(printable(word));
  return words;
}

bool is_recorded(std::string_view variable) {
  for (const std::string_view prefix :
       {"TETRAD_", "OMP_", "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "SLURM_JOB", "SLURM_PROC"})
    if (variable.starts_with(prefix)) return variable.find("KEY") == std::string_view::npos;
  return false;
}

nlohmann::json environment() {
  nlohmann::json variables = nlohmann::json::object();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos && is_recorded(text.substr(0, equals)))
      variables[printable(text.substr(0, equals))] = printable(text.substr(equals + 1));
  }
  return variables;
}

}  // namespace

nlohmann::json describe_origin(const std::string& version, const std::string& build) {
  utsname system = {};
  uname(&system);
  return {{"created", utc_time(std::time(nullptr))},
          {"tetrad", version},
          {"build", build},
          {"command", command_line()},
          {"folder", printable(std::filesystem::current_path().native())},
          {"host", printable(system.nodename)},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"environment", environment()}};
}

}  // namespace tetrad
