// SPDX-License-Identifier: Apache-2.0
#include "backend_choice.h"

#include "terminal.h"
#include "tetrad/core/cache_folder.h"
#include "tetrad/core/error.h"
#include "tetrad/selftest/first_run.h"
#include "version.h"

namespace tetrad::app {

std::unique_ptr<Backend> choose_backend(const std::string& name, const BackendOptions& options) {
  const CpuOptions cpu{.threads = options.threads, .instruction_set = {}};
  const CudaOptions cuda{
      .device = options.device, .threads = options.threads, .tune = options.tune, .native = options.native};
  if (name == "cpu") return make_cpu_backend(cpu);
  if (name == "cuda") return make_cuda_backend(cuda);
  TETRAD_CHECK(name == "auto", "run.backend: '{}' is not auto, cpu or cuda", name);
  try {
    return make_cuda_backend(cuda);
  } catch (const Error&) {
    return make_cpu_backend(cpu);
  }
}

std::unique_ptr<Backend> choose_tested_backend(const std::string& name, BackendOptions options) {
  if (std::unique_ptr<Backend> backend = choose_backend(name, options); selftest::is_known(*backend))
    return backend;
  const auto open = [&](bool native) {
    BackendOptions trial = options;
    trial.tune = false;
    trial.native = native;
    return choose_backend(name, trial);
  };
  const std::unique_ptr<Backend> reference =
      make_cpu_backend({.threads = options.threads, .instruction_set = {}});
  options.native = selftest::may_use_native({open, *reference, kBuildId, cache_folder(), terminal()});
  return choose_backend(name, options);
}

std::string hardware_name(const Backend& backend) {
  for (const auto& [name, value] : backend.properties())
    if (name == (backend.name() == "cpu" ? "processor" : "device")) return value;
  return "";
}

}  // namespace tetrad::app
