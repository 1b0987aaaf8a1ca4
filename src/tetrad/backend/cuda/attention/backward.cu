// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/attention/backward.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

/// delta: kDim / 8 lanes have a row of one head.
template <int kDim>
__global__ void delta_kernel(BackwardParameters p, std::int64_t rows) {
  constexpr int kLanes = kDim / 8;
  const std::int64_t index = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
  const std::int64_t head = index % p.heads;
  const std::int64_t row = min(index / p.heads, rows - 1);  // every lane takes part in the sum
  const std::int64_t col = head * kDim + threadIdx.x % kLanes * 8;
  float out[8];
  float dout[8];
  load(p.out.row(row) + col, out);
  load(p.dout.row(row) + col, dout);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += out[i] * dout[i];
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x % kLanes == 0 && index / p.heads < rows)
    p.delta[(row / p.sequence * p.heads + head) * p.sequence + row % p.sequence] = sum;
}

template <int kDim, bool kWarpgroups, bool kDocuments>
void backward(Device& device, const AttentionBackward& op) {
  constexpr int kThreads = 256;
  const AttentionShape& shape = op.shape;
  const std::int64_t rows = shape.batch * shape.sequence;
  BackwardParameters p{};
  p.sequence = static_cast<int>(shape.sequence);
  p.heads = static_cast<int>(shape.heads);
  p.kv_heads = static_cast<int>(shape.kv_heads);
  p.group = p.heads / p.kv_heads;
  p.scale = shape.scale;
  p.q = view_as<Bf16>(op.q);
  p.k = view_as<Bf16>(op.k);
  p.v = view_as<Bf16>(op.v);
  p.out = view_as<Bf16>(op.out);
  p.dout = view_as<Bf16>(op.dout);
  p.dq = view_as<Bf16>(op.dq);
  p.dk = view_as<Bf16>(op.dk);
  p.dv = view_as<Bf16>(op.dv);
  p.log_sum_exp = op.log_sum_exp;
  p.document_starts = op.document_starts;
  p.delta = device.scratch<float>(Device::attention, rows * shape.heads);
  launch(device, ceil_div(rows * shape.heads * (kDim / 8), kThreads), kThreads, 0, delta_kernel<kDim>, p,
         rows);
  differentiate_keys<kDim, kWarpgroups, kDocuments>(device, shape, p);
  differentiate_queries<kDim, kWarpgroups, kDocuments>(device, shape, p);
}

}  // namespace

void attention_on_tensor_cores(Device& device, const AttentionBackward& op) {
  with_engine(device, op, [&](auto dim, auto warpgroups, auto documents) {
    backward<dim, warpgroups, documents>(device, op);
  });
}

}  // namespace tetrad::cuda
