#include "tetrad/backend/cuda/attention.h"

#include "tetrad/backend/cuda/attention_kernels.h"
#include "tetrad/backend/cuda/element.cuh"

namespace tetrad::cuda {
namespace {

template <typename... Views>
bool fits_tensor_cores(const AttentionShape& shape, const Views&... views) {
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.scale > 0 &&
         ((views.dtype == DType::bf16 && is_wide(views)) && ...);
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
  attend(device, {op.shape, 0, op.q, op.k, op.v, op.out, op.log_sum_exp},
         fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out));
}

void attention(Device& device, const AttentionBackward& op) {
  check(op);
  if (fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out, op.dout, op.dq, op.dk, op.dv))
    attention_on_tensor_cores(device, op);
  else
    attention_of_any_shape(device, op);
}

void attention(Device& device, const AttentionDecode& op) {
  // Few queries leave most of the tensor cores' tile of 128 empty, and it does not share out the keys.
  constexpr std::int64_t kFewestQueries = 64;
  check(op);
  attend(device, {op.shape, op.cached, op.q, op.k, op.v, op.out, nullptr},
         op.shape.sequence >= kFewestQueries && fits_tensor_cores(op.shape, op.q, op.k, op.v, op.out));
}

}  // namespace tetrad::cuda
