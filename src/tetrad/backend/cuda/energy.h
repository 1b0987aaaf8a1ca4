#pragma once
// What the GPU has used so far, through NVML where the driver brings it.

#include <optional>
#include <string>

namespace tetrad::cuda {

class EnergyMeter {
 public:
  /// `bus_id` names the device to the driver, as in "0000:1b:00.0".
  explicit EnergyMeter(const std::string& bus_id);
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;
  ~EnergyMeter();

  /// Since the driver was loaded; nothing where the device does not say.
  std::optional<double> joules() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace tetrad::cuda
