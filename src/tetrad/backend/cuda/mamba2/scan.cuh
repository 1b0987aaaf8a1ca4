// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the parts of the scan share: the cut of a sequence into tiles, its views, its scratch memory.

#include <algorithm>
#include <cstdint>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/core/checked.h"
#include "tetrad/ops/mamba2.h"

namespace tetrad::cuda {

inline constexpr int kTile = 64;  //!< tokens, at most, that are worked on together

/// Chunks, of which the caller sees the states, are cut into tiles, at whose starts the kernels want them.
/// Tiles that lie beyond the end of the sequence are empty.
struct Tiles {
  std::int64_t sequence, chunk;
  std::int64_t length;
  std::int64_t per_chunk;
  std::int64_t count;  //!< in a sequence

  struct Span {
    std::int64_t first, last;  //!< tokens of the sequence
    __host__ __device__ std::int64_t size() const { return last - first; }
    __host__ __device__ bool is_empty() const { return last <= first; }
  };
  __host__ __device__ Span span(std::int64_t tile) const {
    const std::int64_t chunk_first = tile / per_chunk * chunk;
    const std::int64_t first = chunk_first + tile % per_chunk * length;
    std::int64_t last = first + length;
    if (last > chunk_first + chunk) last = chunk_first + chunk;
    if (last > sequence) last = sequence;
    return {first, last};
  }
};

inline Tiles tiles_of(const Mamba2Shape& shape) {
  const std::int64_t chunk = std::min(shape.chunk, shape.sequence);
  const std::int64_t length = std::min<std::int64_t>(kTile, chunk);
  const std::int64_t per_chunk = ceil_div(chunk, length);
  return {shape.sequence, chunk, length, per_chunk, shape.chunks() * per_chunk};
}

/// Chunks as they are.
inline Tiles chunks_of(const Mamba2Shape& shape) {
  return {shape.sequence, shape.chunk, shape.chunk, 1, shape.chunks()};
}

template <typename T>
struct ScanViews {
  View<const T> x, b, c, dt;
  const float *dt_bias, *a_log, *d;
  const std::int32_t* document_starts;
};
template <typename T>
ScanViews<T> views_of(const ScanInputs& in) {
  return {
      view_as<T>(in.x),  view_as<T>(in.b), view_as<T>(in.c), view_as<T>(in.dt), in.dt_bias, in.a_log, in.d,
      in.document_starts};
}

/// Whether a document begins at the token of this row, the `time`-th of its sequence.
__device__ inline bool begins_document(const std::int32_t* starts, std::int64_t row, std::int64_t time) {
  return starts != nullptr && starts[row] == time;
}

/// Time steps and decays of every token and head: [batch * sequence, heads]. The decay of a document's first
/// token is zero: nothing of the state is left.
struct Steps {
  float *dt, *decay;
};

/// Arrays in one slot of scratch memory: first all sizes, then all addresses.
class ScratchLayout {
 public:
  std::int64_t add(std::int64_t floats) {
    const std::int64_t at = size_;
    size_ += ceil_div(floats, kAlignment) * kAlignment;
    return at;
  }
  float* allocate(Device& device) const { return device.scratch<float>(Device::scan, size_); }

 private:
  static constexpr std::int64_t kAlignment = 64;
  std::int64_t size_ = 0;
};

}  // namespace tetrad::cuda
