// SPDX-License-Identifier: Apache-2.0
#pragma once
// How this backend uses memory: sizes that its kernels follow, and the prediction of what its operations
// hold. Needs no CUDA: --dry-run predicts for a GPU in every build.

#include <algorithm>
#include <cstdint>

#include "tetrad/ops/memory.h"

namespace tetrad {

namespace cuda {

/// Bytes of the workspace that every product may use.
inline constexpr std::int64_t kProductWorkspace = std::int64_t{64} << 20;
/// Bytes, at most, where cuDNN computes attention, and where it is to do so by parts.
inline constexpr std::int64_t kAttentionWorkspace = std::int64_t{9} << 29;
inline constexpr std::int64_t kAttentionWorkspaceByParts = kAttentionWorkspace / 4;

/// Elements of each moment that are brought from the host at one time, and how many such pieces are on the
/// device at once.
inline constexpr std::int64_t kStagedMoments = std::int64_t{1} << 24;
inline constexpr int kMomentStages = 3;

/// Bytes per second between the device and pinned memory of the host, each way while both are used:
/// what an update reached on an H200 (docs/benchmarks.md). The one figure of a plan's cost that is not
/// computed.
inline constexpr double kHostBandwidth = 50e9;

/// Tokens whose logits exist at one time. A multiple of 128 keeps the products' tiles whole.
constexpr std::int64_t loss_chunk(std::int64_t tokens, std::int64_t vocab) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 27;  // elements, about
  constexpr std::int64_t kUnit = 128;
  return std::min(tokens, std::max<std::int64_t>(1, kLogits / vocab / kUnit) * kUnit);
}

/// Whether code x block scale is not exact in BF16: FP8, but for one scale of the whole tensor.
inline bool has_f32_block_scales(const QuantSpec& spec) {
  return spec.format == Format::fp8 && !spec.block.is_whole();
}

/// Whether FP8 matrix units take an operand of [rows, depth] as it is. `transposed`: it was quantized the
/// other way round. A block of 1x128 has its elements along the tensor's columns, which must then be the
/// depth; the last block may be shorter.
bool fits_fp8_units(const BlockShape& block, std::int64_t rows, std::int64_t depth, bool transposed);

/// How the scales of such an operand lie for cuBLASLt: [depth / 128, rows] of 1x128, [rows / 128, depth /
/// 128] of squares, both rounded up, and the lines of squares padded to a multiple of 4.
struct Fp8ScaleLines {
  std::int64_t count, length;
};
Fp8ScaleLines fp8_scale_lines(const BlockShape& block, std::int64_t rows, std::int64_t depth);

/// Whether the gradients of attention are computed, where there is cuDNN, with a matrix [sequence, sequence]
/// for every head. For smaller heads our kernels, which need none, are nearly as fast.
constexpr bool keeps_scores(const AttentionShape& shape) {
  constexpr std::int64_t kRowsOfTile = 128;
  return shape.head_dim == 128 && shape.sequence % kRowsOfTile == 0;
}

/// Gradients of attention that are computed at a time: so many sequences or, where one takes too much memory,
/// so many heads of keys of one, with all queries that read them.
struct AttentionPart {
  std::int64_t batch, kv_heads;
};
/// If all of them take `bytes` and no more than `limit` are to be taken.
AttentionPart attention_part(std::int64_t batch, std::int64_t kv_heads, std::int64_t bytes,
                             std::int64_t limit);

/// Whether the scan has tensor core kernels for heads and states of these sizes.
constexpr bool has_tensor_core_scan(const Mamba2Shape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 80) && (shape.state == 64 || shape.state == 128);
}

/// Operations have memory of their own that grows to what was ever needed and stays.
std::unique_ptr<OperationMemory> operation_memory();

}  // namespace cuda

/// On a GPU whose matrix units take FP8, and with cuDNN.
inline constexpr MemoryTraits kCudaMemory = {.operands_are_values = true,
                                             .operations = cuda::operation_memory,
                                             .host_bandwidth = cuda::kHostBandwidth};

}  // namespace tetrad
