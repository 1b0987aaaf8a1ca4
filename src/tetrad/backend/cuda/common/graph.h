// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations recorded from a stream, to be launched again as one.

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "tetrad/backend/cuda/common/device.h"

namespace tetrad::cuda {

class Graph {
 public:
  explicit Graph(cudaGraphExec_t graph) : graph_(graph, cudaGraphExecDestroy) {}

  void launch(const Device& device) const;

 private:
  std::shared_ptr<std::remove_pointer_t<cudaGraphExec_t>> graph_;
};

/// What `work` puts on the device's stream, which is not executed. An exception in `work` is passed on, and
/// the stream is usable afterwards.
Graph record(const Device& device, const std::function<void()>& work);

}  // namespace tetrad::cuda
