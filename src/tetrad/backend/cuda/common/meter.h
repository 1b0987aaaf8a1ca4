// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the GPU has used so far and how busy it is, through NVML where the driver brings it.

#include <optional>
#include <string>

namespace tetrad::cuda {

class DeviceMeter {
 public:
  /// `bus_id` names the device to the driver, as in "0000:1b:00.0".
  explicit DeviceMeter(const std::string& bus_id);
  DeviceMeter(const DeviceMeter&) = delete;
  DeviceMeter& operator=(const DeviceMeter&) = delete;
  ~DeviceMeter();

  /// Since the driver was loaded; nothing where the device does not say.
  std::optional<double> joules() const;
  /// Share of the last second or less in which a kernel ran; nothing where the device does not say.
  std::optional<double> busy() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace tetrad::cuda
