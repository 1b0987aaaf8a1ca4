// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/copy_lanes.h"

#include <algorithm>

#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/backend/cuda/common/host_memory.h"

namespace tetrad::cuda {

CopyLanes::CopyLanes(const Device& /*device*/) {
  for (Lane& lane : lanes_) {
    check(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&lane.begun, cudaEventDisableTiming));
    check(cudaEventCreateWithFlags(&lane.done, cudaEventDisableTiming));
  }
}

CopyLanes::~CopyLanes() {
  for (const Lane& lane : lanes_) {
    for (cudaEvent_t event : {lane.begun, lane.done})
      if (event != nullptr) cudaEventDestroy(event);
    if (lane.stream != nullptr) cudaStreamDestroy(lane.stream);
  }
}

void CopyLanes::copy(const Device& device, std::size_t index, std::span<const std::byte> from,
                     std::span<std::byte> to) {
  Lane& lane = lanes_.at(index);
  check(cudaEventRecord(lane.begun, device.stream()));
  check(cudaStreamWaitEvent(lane.stream, lane.begun));
  for (std::size_t done = 0, size = 0; done < from.size(); done += size) {
    const std::byte* const source = from.data() + done;
    std::byte* const target = to.data() + done;
    size = std::min({from.size() - done, until_next_piece(source), until_next_piece(target)});
    check(cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, lane.stream));
  }
  check(cudaEventRecord(lane.done, lane.stream));
  lane.is_open = true;
}

void CopyLanes::join(const Device& device, std::size_t index) {
  Lane& lane = lanes_.at(index);
  if (!lane.is_open) return;
  check(cudaStreamWaitEvent(device.stream(), lane.done));
  lane.is_open = false;
}

}  // namespace tetrad::cuda
