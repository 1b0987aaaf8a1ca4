// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies to and from the host that run beside a context's operations: one stream for each lane, ordered by
// events alone, so that a recorded pass takes them along.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <span>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/backend.h"

namespace tetrad::cuda {

/// Kept by a device (Device::kept).
class CopyLanes {
 public:
  explicit CopyLanes(const Device& device);
  CopyLanes(const CopyLanes&) = delete;
  CopyLanes& operator=(const CopyLanes&) = delete;
  ~CopyLanes();

  /// See Backend.
  void copy(const Device& device, std::size_t index, std::span<const std::byte> from,
            std::span<std::byte> to);
  void join(const Device& device, std::size_t index);

 private:
  struct Lane {
    cudaStream_t stream = nullptr;
    cudaEvent_t begun = nullptr;  //!< what was on the device's stream before the copy is done
    cudaEvent_t done = nullptr;
    /// Whether nobody has waited for the last copy. A recording must not wait for what was not recorded with
    /// it.
    bool is_open = false;
  };

  std::array<Lane, kCopyLanes> lanes_;
};

}  // namespace tetrad::cuda
