// SPDX-License-Identifier: Apache-2.0
// The backward pass sorts the tokens by id (a stable sort: equal ids stay in their order) and adds up runs of
// equal ids, in pieces of fixed length, so that neither a rare nor a frequent id makes the others wait, and
// every sum has one order.

#include "tetrad/backend/cuda/layers/layers.h"

#include <cub/device/device_radix_sort.cuh>

#include <limits>

#include "tetrad/backend/cuda/common/element.cuh"
#include "tetrad/backend/cuda/common/launch.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPiece = 32;  //!< sorted tokens that one block adds up

template <typename T, int kWidth>
__global__ void gather_kernel(const std::int32_t* tokens, const float* table, std::int64_t vocab, View<T> out,
                              Extent extent) {
  for_each_group<kWidth>(extent, [&](std::int64_t row, std::int64_t col) {
    const std::int32_t id = tokens[row];
    float value[kWidth];
    if (id >= 0 && id < vocab) {
      load(table + id * extent.cols + col, value);
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) value[i] = std::numeric_limits<float>::quiet_NaN();
    }
    store(out.row(row) + col, value);
  });
}

__global__ void count_kernel(std::int32_t* positions, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) positions[i] = static_cast<std::int32_t>(i);
}

/// Where a run of equal ids goes: whole runs into the table, those that cross a piece's edge into partial
/// sums.
struct Sorted {
  const std::int32_t* ids;
  const std::int32_t* positions;
  std::int64_t count;
};

/// partial is [pieces, 2, width]: the sums of the piece's first run, if it began before the piece, and of its
/// last run, if that goes on after it.
template <typename T>
__global__ void piece_kernel(Sorted sorted, View<const T> dout, std::int64_t width, std::int64_t vocab,
                             float* dtable, float* partial) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kPiece;
  const std::int64_t last = min(first + kPiece, sorted.count);
  const std::int64_t col = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (col >= width) return;
  float* edges = partial + std::int64_t{blockIdx.x} * 2 * width;
  for (std::int64_t i = first; i < last;) {
    const std::int32_t id = sorted.ids[i];
    const bool from_before = i == first && first > 0 && sorted.ids[first - 1] == id;
    float sum = 0;
    for (; i < last && sorted.ids[i] == id; ++i) sum += to_f32(dout.row(sorted.positions[i])[col]);
    const bool goes_on = i == last && last < sorted.count && sorted.ids[last] == id;
    if (from_before)
      edges[col] = sum;
    else if (goes_on)
      edges[width + col] = sum;
    else if (id >= 0 && id < vocab)
      dtable[id * width + col] += sum;
  }
}

/// Adds up the runs that cross edges; each belongs to the piece in which it begins.
__global__ void edge_kernel(Sorted sorted, std::int64_t width, std::int64_t vocab, float* dtable,
                            const float* partial) {
  const std::int64_t last = (std::int64_t{blockIdx.x} + 1) * kPiece;
  const std::int64_t col = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (col >= width || last >= sorted.count) return;
  const std::int32_t id = sorted.ids[last - 1];
  if (sorted.ids[last] != id || id < 0 || id >= vocab) return;
  const std::int64_t first = last - kPiece;
  const bool began_before = sorted.ids[first] == id && first > 0 && sorted.ids[first - 1] == id;
  if (began_before) return;
  float sum = partial[(std::int64_t{blockIdx.x} * 2 + 1) * width + col];
  for (std::int64_t piece = blockIdx.x + 1; piece * kPiece < sorted.count && sorted.ids[piece * kPiece] == id;
       ++piece)
    sum += partial[piece * 2 * width + col];
  dtable[id * width + col] += sum;
}

/// The tokens' ids in ascending order, and where each stood.
Sorted sort(Device& device, const std::int32_t* tokens, std::int64_t count) {
  const auto items = static_cast<int>(count);
  std::size_t temporary_bytes = 0;
  const std::int32_t* none = nullptr;
  check(cub::DeviceRadixSort::SortPairs(nullptr, temporary_bytes, none, static_cast<std::int32_t*>(nullptr),
                                        none, static_cast<std::int32_t*>(nullptr), items, 0, 32,
                                        device.stream()));
  temporary_bytes = (temporary_bytes + 255) / 256 * 256;
  const std::size_t list =
      static_cast<std::size_t>(ceil_div(count, std::int64_t{64})) * 64 * sizeof(std::int32_t);
  std::byte* memory = device.scratch(Device::tables, temporary_bytes + 3 * list);
  auto* positions = reinterpret_cast<std::int32_t*>(memory + temporary_bytes);
  auto* sorted_ids = reinterpret_cast<std::int32_t*>(memory + temporary_bytes + list);
  auto* sorted_positions = reinterpret_cast<std::int32_t*>(memory + temporary_bytes + 2 * list);
  launch(device, ceil_div(count, std::int64_t{256}), 256, 0, count_kernel, positions, count);
  check(cub::DeviceRadixSort::SortPairs(memory, temporary_bytes, tokens, sorted_ids, positions,
                                        sorted_positions, items, 0, 32, device.stream()));
  return {sorted_ids, sorted_positions, count};
}

}  // namespace

void embedding(Device& device, const EmbeddingForward& op) {
  const Extent extent{op.out.rows, op.out.cols};
  check_rows("embedding", "out", op.out, extent.rows, extent.cols, op.out.dtype);
  with_type(op.out.dtype, [&]<typename T>(T) {
    with_width(is_wide(op.out) && is_wide(op.table), [&](auto width) {
      launch_groups<width>(device, extent, gather_kernel<T, width>, op.tokens, op.table, op.vocab,
                           view_as<T>(op.out), extent);
    });
  });
}

void embedding(Device& device, const EmbeddingBackward& op) {
  const std::int64_t count = op.dout.rows;
  const std::int64_t width = op.dout.cols;
  check_rows("embedding", "dout", op.dout, count, width, op.dout.dtype);
  const Sorted sorted = sort(device, op.tokens, count);
  const std::int64_t pieces = ceil_div(count, std::int64_t{kPiece});
  auto* partial = device.scratch<float>(Device::partial_sums, pieces * 2 * width);
  const dim3 grid(static_cast<unsigned>(pieces),
                  static_cast<unsigned>(ceil_div(width, std::int64_t{kThreads})), 1);
  with_type(op.dout.dtype, [&]<typename T>(T) {
    piece_kernel<T><<<grid, kThreads, 0, device.stream()>>>(sorted, view_as<T>(op.dout), width, op.vocab,
                                                            op.dtable, partial);
  });
  check_launch();
  edge_kernel<<<grid, kThreads, 0, device.stream()>>>(sorted, width, op.vocab, op.dtable, partial);
  check_launch();
}

}  // namespace tetrad::cuda
