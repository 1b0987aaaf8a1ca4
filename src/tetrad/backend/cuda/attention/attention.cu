// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/attention/attention.h"

#include "tetrad/backend/cuda/attention/cudnn_attention.h"
#include "tetrad/backend/cuda/attention/kernels.h"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/memory.h"

namespace tetrad::cuda {
namespace {

template <typename... Views>
bool fits_tensor_cores(const AttentionShape& shape, const Views&... views) {
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.scale > 0 &&
         ((views.dtype == DType::bf16 && is_wide(views)) && ...);
}

/// Decided by shape alone: the same problem gets the same kernels, and so the same bits, in every run. The
/// graphs for cuDNN know no documents.
template <typename Op>
bool wants_cudnn(const Device& device, const Op& op, bool is_best) {
  if (device.attention_engine == AttentionEngine::own || op.document_starts != nullptr) return false;
  if (!is_wide(static_cast<const float*>(op.log_sum_exp)) || !cudnn_serves(device, op.shape)) return false;
  return is_best || device.attention_engine != AttentionEngine::best;
}

void attend(Device& device, const AttentionProblem& problem, bool tensor_cores) {
  if (tensor_cores)
    attention_on_tensor_cores(device, problem);
  else
    attention_of_any_shape(device, problem);
}

}  // namespace

void attention(Device& device, const AttentionForward& op) {
  check(op);
  const bool tensor_cores = fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out);
  if (tensor_cores && wants_cudnn(device, op, true) && attention_by_cudnn(device, op)) return;
  attend(device, {op.shape, 0, op.q, op.k, op.v, op.out, op.log_sum_exp, op.document_starts}, tensor_cores);
}

void attention(Device& device, const AttentionBackward& op) {
  check(op);
  const bool tensor_cores =
      fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out, op.dout, op.dq, op.dk, op.dv);
  const bool repeats = device.attention_engine != AttentionEngine::unrepeatable_library;
  if (tensor_cores && wants_cudnn(device, op, keeps_scores(op.shape)) &&
      attention_by_cudnn(device, op, {.deterministic = repeats, .by_parts = op.by_parts}))
    return;
  if (tensor_cores)
    attention_on_tensor_cores(device, op);
  else
    attention_of_any_shape(device, op);
}

void attention(Device& device, const AttentionDecode& op) {
  // Few queries leave most of the tensor cores' tile of 128 empty, and it does not share out the keys.
  constexpr std::int64_t kFewestQueries = 64;
  check(op);
  attend(device, {op.shape, op.cached, op.q, op.k, op.v, op.out, nullptr, nullptr},
         op.shape.sequence >= kFewestQueries && fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out));
}

bool use_attention_engine(Device& device, AttentionEngine engine, const AttentionShape& shape) {
  const bool is_library = engine != AttentionEngine::best && engine != AttentionEngine::own;
  if (is_library && !cudnn_serves(device, shape)) return false;
  device.attention_engine = engine;
  return true;
}

}  // namespace tetrad::cuda
