// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/graph.h"

#include <utility>

#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {
namespace {

/// A stream that records instead of executing, as long as this lives.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (stream_ != nullptr) {
      static_cast<void>(finish());
      cudaGetLastError();  // what went wrong is on its way as an exception; the next launch shall not find it
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }

  /// Ends the recording, also one that was invalidated.
  cudaError_t finish() { return cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph_); }
  cudaGraph_t graph() const { return graph_; }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

void Graph::launch(const Device& device) const { check(cudaGraphLaunch(graph_.get(), device.stream())); }

Graph record(const Device& device, const std::function<void()>& work) {
  Capture capture(device.stream());
  work();
  check(capture.finish());
  cudaGraphExec_t replayable = nullptr;
  check(cudaGraphInstantiate(&replayable, capture.graph(), 0));
  return Graph(replayable);
}

}  // namespace tetrad::cuda
