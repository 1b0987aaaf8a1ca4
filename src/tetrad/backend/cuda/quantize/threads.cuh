// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the threads of a grid share out the items of a quantization.

#include <cstdint>

#include "tetrad/backend/cuda/common/reduce.cuh"
#include "tetrad/backend/cuda/quantize/problem.h"

namespace tetrad::cuda {

__device__ inline bool is_first_thread() { return blockIdx.x == 0 && threadIdx.x == 0; }

/// Calls body(item) for each item of this thread.
template <typename Body>
__device__ inline void for_each_item(std::int64_t items, const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items; item += step)
    body(item);
}

/// Raises the tensor's amax to the largest of this block of threads: one atomic for them all. Every thread
/// must come.
__device__ inline void raise_from_block(QuantState* state, std::uint32_t bits) {
  const std::uint32_t largest = largest_of_block(bits);
  if (threadIdx.x == 0) atomicMax(&state->amax_bits, largest);
}

}  // namespace tetrad::cuda
