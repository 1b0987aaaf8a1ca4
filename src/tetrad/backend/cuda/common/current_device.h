// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which device the calls of a thread go to. CUDA keeps that per thread; a context enters its own device for
// the time of an operation and leaves the thread as it found it.

#include <cuda_runtime.h>

#include <new>

#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {

class CurrentDevice {
 public:
  explicit CurrentDevice(int device) { check(enter(device)); }
  /// For destructors: what follows will find out by itself that there is no device any more.
  CurrentDevice(int device, std::nothrow_t /*tag*/) noexcept { static_cast<void>(enter(device)); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (entered_) cudaSetDevice(before_);
  }

 private:
  cudaError_t enter(int device) noexcept {
    if (const cudaError_t result = cudaGetDevice(&before_); result != cudaSuccess || before_ == device)
      return result;
    const cudaError_t result = cudaSetDevice(device);
    entered_ = result == cudaSuccess;
    return result;
  }

  int before_ = 0;
  bool entered_ = false;
};

}  // namespace tetrad::cuda
