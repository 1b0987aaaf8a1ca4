// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moments that lie on the host, brought to the device a piece at a time: while one piece is updated, the next
// one comes and the one before goes back, each on a stream of its own.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/ops/adamw.h"

namespace tetrad::cuda {

class MomentStaging {
 public:
  explicit MomentStaging(const Device& device);
  MomentStaging(const MomentStaging&) = delete;
  MomentStaging& operator=(const MomentStaging&) = delete;
  ~MomentStaging();

  /// `update` puts the update of a piece, whose moments are on the device, on the device's stream.
  using Update = std::function<void(const AdamWTensor& piece)>;
  void step(const Device& device, const AdamWTensor& tensor, const Update& update);
  /// What follows on the device's stream finds all moments back on the host.
  void finish(const Device& device);

 private:
  struct Stage {
    Buffer first, second;
    cudaEvent_t loaded = nullptr, updated = nullptr, stored = nullptr;
  };

  std::array<Stage, kMomentStages> stages_;
  cudaStream_t in_ = nullptr, out_ = nullptr;
  cudaEvent_t begun_ = nullptr;
  std::size_t next_ = 0;
};

}  // namespace tetrad::cuda
