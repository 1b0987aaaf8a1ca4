// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/meter.h"

#include <dlfcn.h>

namespace tetrad::cuda {
namespace {

// NVML's interface, as far as it is used: the library comes with the driver, its header with the toolkit, and
// not every machine that compiles has both. Functions return 0 for success.
using Init = int (*)();
using Shutdown = int (*)();
using HandleByBusId = int (*)(const char*, void**);
using TotalEnergy = int (*)(void*, unsigned long long*);  // millijoules
struct Utilization {
  unsigned gpu, memory;  // percent
};
using UtilizationRates = int (*)(void*, Utilization*);

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

DeviceMeter::DeviceMeter(const std::string& bus_id)
    : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  const auto init = find<Init>(library_, "nvmlInit_v2");
  const auto handle = find<HandleByBusId>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (init == nullptr || handle == nullptr || init() != 0 || handle(bus_id.c_str(), &device_) != 0)
    device_ = nullptr;
}

DeviceMeter::~DeviceMeter() {
  if (library_ == nullptr) return;
  if (const auto shutdown = find<Shutdown>(library_, "nvmlShutdown"); shutdown != nullptr) shutdown();
  dlclose(library_);
}

std::optional<double> DeviceMeter::joules() const {
  if (device_ == nullptr) return std::nullopt;
  const auto total = find<TotalEnergy>(library_, "nvmlDeviceGetTotalEnergyConsumption");
  unsigned long long millijoules = 0;
  if (total == nullptr || total(device_, &millijoules) != 0) return std::nullopt;
  return static_cast<double>(millijoules) * 1e-3;
}

std::optional<double> DeviceMeter::busy() const {
  if (device_ == nullptr) return std::nullopt;
  const auto rates = find<UtilizationRates>(library_, "nvmlDeviceGetUtilizationRates");
  Utilization utilization = {};
  if (rates == nullptr || rates(device_, &utilization) != 0) return std::nullopt;
  return utilization.gpu * 1e-2;
}

}  // namespace tetrad::cuda
