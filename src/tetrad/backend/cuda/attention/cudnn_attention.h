// SPDX-License-Identifier: Apache-2.0
#pragma once
// Attention through cuDNN, a family of kernels beside those of kernels.h: on Hopper, where the
// build has found the library. It asks for the same views as attention_on_tensor_cores().

#include <cstddef>
#include <string>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/memory.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

struct CudnnAttentionOptions {
  /// False: gradients may differ from run to run. Only to measure what determinism costs.
  bool deterministic = true;
  /// Deterministic gradients take memory that grows with the square of the sequence: what would take more
  /// than kAttentionWorkspace, or kAttentionWorkspaceByParts, is cut into parts, done one after another, each
  /// of which fills the device less well: a limit of 1.25 GiB costs a tenth of the backward pass at 32k
  /// tokens with heads of 128.
  bool by_parts = false;
};

#ifdef TETRAD_CUDNN

/// Whether device and library are ones, and the shape is one, that these kernels are for.
bool cudnn_serves(const Device& device, const AttentionShape& shape);

/// False where cuDNN has no plan for the operation, and nothing was done.
bool attention_by_cudnn(Device& device, const AttentionForward& op,
                        const CudnnAttentionOptions& options = {});
bool attention_by_cudnn(Device& device, const AttentionBackward& op,
                        const CudnnAttentionOptions& options = {});

/// For `tetrad info`: the library, and where it is not used, why.
std::string cudnn_attention_state(const Device& device);

#else

inline bool cudnn_serves(const Device&, const AttentionShape&) { return false; }
inline bool attention_by_cudnn(Device&, const AttentionForward&, const CudnnAttentionOptions& = {}) {
  return false;
}
inline bool attention_by_cudnn(Device&, const AttentionBackward&, const CudnnAttentionOptions& = {}) {
  return false;
}
inline std::string cudnn_attention_state(const Device&) { return "not in this build"; }

#endif

}  // namespace tetrad::cuda
