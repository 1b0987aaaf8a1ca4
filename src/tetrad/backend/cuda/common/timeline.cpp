// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/timeline.h"

#include <new>
#include <vector>

#include "tetrad/backend/cuda/common/current_device.h"
#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {
namespace {

/// Keeps its events: making one takes longer than many an operation.
class DeviceTimeline final : public Timeline {
 public:
  explicit DeviceTimeline(const Device& device) : device_(device.index()), stream_(device.stream()) {}
  ~DeviceTimeline() override {
    const CurrentDevice current(device_, std::nothrow);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void mark() override {
    const CurrentDevice current(device_);
    if (marks_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreate(&event));
      events_.push_back(event);
    }
    check(cudaEventRecord(events_[marks_], stream_));
    ++marks_;
  }

  std::vector<double> take() override {
    const CurrentDevice current(device_);
    std::vector<double> seconds(marks_);
    if (marks_ > 0) check(cudaEventSynchronize(events_[marks_ - 1]));
    for (std::size_t i = 0; i < marks_; ++i) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, events_.front(), events_[i]));
      seconds[i] = static_cast<double>(milliseconds) * 1e-3;
    }
    marks_ = 0;
    return seconds;
  }

 private:
  int device_;
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  std::size_t marks_ = 0;  //!< events that are in use
};

}  // namespace

std::unique_ptr<Timeline> make_timeline(const Device& device) {
  return std::make_unique<DeviceTimeline>(device);
}

}  // namespace tetrad::cuda
