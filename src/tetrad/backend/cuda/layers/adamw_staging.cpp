// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/layers/adamw_staging.h"

#include <algorithm>

#include "tetrad/backend/cuda/common/error.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad::cuda {
namespace {

/// Of one moment of so many elements.
std::size_t bytes_of(const AdamWTensor& tensor, std::int64_t elements) {
  return static_cast<std::size_t>(moment_bytes(elements, tensor.moments) / 2);
}

}  // namespace

MomentStaging::MomentStaging(const Device& device) {
  const auto make = [](cudaEvent_t& event) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  };
  check(cudaStreamCreateWithFlags(&in_, cudaStreamNonBlocking));
  check(cudaStreamCreateWithFlags(&out_, cudaStreamNonBlocking));
  make(begun_);
  for (Stage& stage : stages_) {
    stage.first = device.allocate(kStagedMoments * sizeof(float));
    stage.second = device.allocate(kStagedMoments * sizeof(float));
    make(stage.loaded);
    make(stage.updated);
    make(stage.stored);
  }
}

MomentStaging::~MomentStaging() {
  for (const Stage& stage : stages_)
    for (cudaEvent_t event : {stage.loaded, stage.updated, stage.stored})
      if (event != nullptr) cudaEventDestroy(event);
  if (begun_ != nullptr) cudaEventDestroy(begun_);
  for (cudaStream_t stream : {in_, out_})
    if (stream != nullptr) cudaStreamDestroy(stream);
}

void MomentStaging::step(const Device& device, const AdamWTensor& tensor, const Update& update) {
  // What was put on the stream before, such as zeros or a checkpoint's moments, comes first.
  check(cudaEventRecord(begun_, device.stream()));
  check(cudaStreamWaitEvent(in_, begun_));
  for (std::int64_t first = 0; first < tensor.size; first += kStagedMoments) {
    if (failpoint_fails("offload.copy")) fail_errno("moments on the host cannot be copied");
    Stage& stage = stages_[next_++ % kMomentStages];
    AdamWTensor piece = tensor;
    piece.size = std::min<std::int64_t>(kStagedMoments, tensor.size - first);
    piece.weight += first;
    piece.gradient += first;
    piece.first += first;
    piece.first_moment = stage.first.data();
    piece.second_moment = stage.second.data();
    piece.moments_on_host = false;
    const std::size_t bytes = bytes_of(tensor, piece.size);
    const std::size_t offset = bytes_of(tensor, first);
    std::byte* const first_moment = static_cast<std::byte*>(tensor.first_moment) + offset;
    std::byte* const second_moment = static_cast<std::byte*>(tensor.second_moment) + offset;

    check(cudaStreamWaitEvent(in_, stage.stored));  // an event that was never recorded is no reason to wait
    check(cudaMemcpyAsync(piece.first_moment, first_moment, bytes, cudaMemcpyHostToDevice, in_));
    check(cudaMemcpyAsync(piece.second_moment, second_moment, bytes, cudaMemcpyHostToDevice, in_));
    check(cudaEventRecord(stage.loaded, in_));

    check(cudaStreamWaitEvent(device.stream(), stage.loaded));
    update(piece);
    check(cudaEventRecord(stage.updated, device.stream()));

    check(cudaStreamWaitEvent(out_, stage.updated));
    check(cudaMemcpyAsync(first_moment, piece.first_moment, bytes, cudaMemcpyDeviceToHost, out_));
    check(cudaMemcpyAsync(second_moment, piece.second_moment, bytes, cudaMemcpyDeviceToHost, out_));
    check(cudaEventRecord(stage.stored, out_));
  }
}

void MomentStaging::finish(const Device& device) {
  for (const Stage& stage : stages_) check(cudaStreamWaitEvent(device.stream(), stage.stored));
}

}  // namespace tetrad::cuda
