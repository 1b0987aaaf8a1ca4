// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/memory_reader.h"

#include <new>
#include <type_traits>

#include "tetrad/backend/cuda/common/current_device.h"
#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

class DeviceMemoryReader final : public MemoryReader {
 public:
  explicit DeviceMemoryReader(const Device& device) : device_(device.index()) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    try {
      check(cudaMallocHost(reinterpret_cast<void**>(&staging_), kMostBytes));
      cudaEvent_t now = nullptr;
      check(cudaEventCreateWithFlags(&now, cudaEventDisableTiming));
      const OwnedEvent event(now);
      check(cudaEventRecord(now, device.stream()));
      check(cudaStreamWaitEvent(stream_, now));
    } catch (...) {
      release();
      throw;
    }
  }
  ~DeviceMemoryReader() override {
    const CurrentDevice current(device_, std::nothrow);
    release();
  }

  std::span<const std::byte> read(std::span<const std::byte> memory) override {
    TETRAD_CHECK(memory.size() <= kMostBytes, "{} bytes are too many to be read at once", memory.size());
    if (memory.empty()) return memory;
    const CurrentDevice current(device_);
    // Moments may lie on the host.
    check(cudaMemcpyAsync(staging_, memory.data(), memory.size(), cudaMemcpyDefault, stream_));
    check(cudaStreamSynchronize(stream_));
    return {staging_, memory.size()};
  }

 private:
  void release() noexcept {
    cudaFreeHost(staging_);
    cudaStreamDestroy(stream_);
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  std::byte* staging_ = nullptr;
};

}  // namespace

std::unique_ptr<MemoryReader> make_reader(const Device& device) {
  return std::make_unique<DeviceMemoryReader>(device);
}

}  // namespace tetrad::cuda
