// SPDX-License-Identifier: Apache-2.0
#include "backend_choice.h"

#include "tetrad/core/error.h"

namespace tetrad::app {

std::unique_ptr<Backend> choose_backend(const std::string& name, int threads, KernelChoice kernels) {
  const CpuOptions cpu{.threads = threads, .instruction_set = {}};
  const CudaOptions cuda{.threads = threads, .tune = kernels == KernelChoice::fastest};
  if (name == "cpu") return make_cpu_backend(cpu);
  if (name == "cuda") return make_cuda_backend(cuda);
  TETRAD_CHECK(name == "auto", "run.backend: '{}' is not auto, cpu or cuda", name);
  try {
    return make_cuda_backend(cuda);
  } catch (const Error&) {
    return make_cpu_backend(cpu);
  }
}

std::string hardware_name(const Backend& backend) {
  for (const auto& [name, value] : backend.properties())
    if (name == (backend.name() == "cpu" ? "processor" : "device")) return value;
  return "";
}

}  // namespace tetrad::app
