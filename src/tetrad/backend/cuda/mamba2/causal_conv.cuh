// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernels of the convolution share. A block is kLanes groups of neighbouring channels times kPieces
// pieces of one sequence.

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/mamba2/mamba2.h"
#include "tetrad/core/checked.h"

namespace tetrad::cuda {

inline constexpr int kLanes = 32;
inline constexpr int kPieces = 8;
inline constexpr int kPiece = 32;  //!< tokens
inline constexpr int kConvThreads = kLanes * kPieces;
inline constexpr int kUsualKernel = 4;  //!< the one that is worth registers

struct ConvShape {
  std::int64_t batch, sequence, channels;
  std::int64_t kernel;
  std::int64_t strips;                  //!< each has kLanes groups of channels
  std::int64_t spans;                   //!< in a sequence, each with kPieces * kPiece tokens
  const std::int32_t* document_starts;  //!< null, or [batch, sequence]

  /// The first token that counts for the one of this row.
  __device__ std::int64_t start(std::int64_t row) const {
    return document_starts == nullptr ? 0 : document_starts[row];
  }
};

template <typename Op>
ConvShape shape_of(const Op& op, int width) {
  return {op.batch,
          op.sequence,
          op.x.cols,
          op.kernel,
          ceil_div(op.x.cols, std::int64_t{kLanes} * width),
          ceil_div(op.sequence, std::int64_t{kPieces} * kPiece),
          op.document_starts};
}

inline std::int64_t blocks_of(const ConvShape& shape) { return shape.batch * shape.spans * shape.strips; }

/// Where a thread works.
struct ConvPlace {
  std::int64_t channel;      //!< first of the group
  std::int64_t first, last;  //!< tokens of the sequence; none where the piece lies beyond its end
  std::int64_t row;          //!< the sequence's first token
  std::int64_t span;         //!< counted over all sequences
};

template <int kWidth>
__device__ inline ConvPlace place_of(const ConvShape& shape) {
  const std::int64_t strip = blockIdx.x % shape.strips;
  const std::int64_t span = blockIdx.x / shape.strips;
  const std::int64_t lane = threadIdx.x % kLanes;
  const std::int64_t piece = span % shape.spans * kPieces + threadIdx.x / kLanes;
  const std::int64_t first = piece * kPiece;
  const std::int64_t last = first + kPiece < shape.sequence ? first + kPiece : shape.sequence;
  return {(strip * kLanes + lane) * kWidth, first, last, span / shape.spans * shape.sequence, span};
}

/// Column tap * channels + channel of the partial sums; the last tap is the bias.
struct ConvTarget {
  float* dweight;
  float* dbias;
  std::int64_t channels, kernel;
  __device__ float* operator()(std::int64_t col) const {
    const std::int64_t tap = col / channels;
    const std::int64_t channel = col % channels;
    return tap == kernel ? dbias + channel : dweight + channel * kernel + tap;
  }
};

/// Any kernel length.
void causal_conv_of_any_kernel(Device& device, const CausalConvForward& op);
void causal_conv_of_any_kernel(Device& device, const CausalConvBackward& op);

}  // namespace tetrad::cuda
