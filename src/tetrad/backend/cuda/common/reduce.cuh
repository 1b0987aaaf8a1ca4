// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums and maxima over the threads of a warp or a block, in a fixed order.

namespace tetrad::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}
__device__ inline double warp_sum(double value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

/// Combines the values of all threads of the block, which all get the result; `shared` has a place for each
/// warp. Ends with a barrier, so that `shared` can be used again.
template <typename T, typename Combine>
__device__ inline T block_reduce(T value, T* shared, const Combine& combine, T neutral) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  value = combine(value);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = combine(lane < warps ? shared[lane] : neutral);
  __syncthreads();
  return value;
}
template <typename T>
__device__ inline T block_sum(T value, T* shared) {
  return block_reduce(
      value, shared, [](T v) { return warp_sum(v); }, T{0});
}

/// The largest of all threads of the block, which must all come and all get it. Ends with a barrier.
__device__ inline unsigned largest_of_block(unsigned value) {
  __shared__ unsigned largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  value = __reduce_max_sync(kAllLanes, value);
  if (threadIdx.x % kWarp == 0) atomicMax(&largest, value);
  __syncthreads();
  value = largest;
  __syncthreads();
  return value;
}

}  // namespace tetrad::cuda
