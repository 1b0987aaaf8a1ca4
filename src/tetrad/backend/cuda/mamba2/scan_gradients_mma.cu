// SPDX-License-Identifier: Apache-2.0
// The gradients of the scan on tensor cores, from the states around each tile (scan_gradients.cu has the
// formulas). A block takes a tile of a group, whose heads share B and C, and its heads one after the other,
// so that the sums over heads stay in registers. Of 16 warps, warp w has tokens 16 (w / 4) … and quarter
// w % 4 of whatever the other dimension is: tokens, channels or state. Heads of 80 have a fifth part of 16
// channels, for which the warps with w / 4 = w % 4 take a second turn.

#include <iterator>

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/mamba2/scan_gradients_mma.cuh"
#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"
#include "tetrad/backend/cuda/mamba2/scan_step_gradients_mma.cuh"

namespace tetrad::cuda {
namespace {

struct GradientOp {
  Mamba2Shape shape;
  ScanViews<Bf16> in;
  View<const Bf16> dy;
  const Bf16* states;
  const Bf16* dstates;
  View<Bf16> dx, db, dc, ddt;
  float* sums;
};

/// Where a block works.
struct GradientTask {
  int tiles;
  int group, tile, batch;
  int head, heads;   //!< the group's first head, and how many it has
  int length;        //!< tokens
  std::int64_t row;  //!< where the first lies

  explicit __device__ GradientTask(const Mamba2Shape& shape)
      : tiles(static_cast<int>((shape.sequence + kTile - 1) / kTile)),
        group(static_cast<int>(blockIdx.x % shape.groups)),
        tile(static_cast<int>(blockIdx.x / shape.groups % tiles)),
        batch(static_cast<int>(blockIdx.x / shape.groups / tiles)),
        heads(static_cast<int>(shape.heads / shape.groups)) {
    head = group * heads;
    row = batch * shape.sequence + std::int64_t{tile} * kTile;
    const std::int64_t left = shape.sequence - std::int64_t{tile} * kTile;
    length = left < kTile ? static_cast<int>(left) : kTile;
  }
  /// Number of (sequence, tile, head).
  __device__ std::int64_t index(const Mamba2Shape& shape, int of_head) const {
    return (std::int64_t{batch} * tiles + tile) * shape.heads + of_head;
  }
};

/// The copies of what a head reads, into the buffers of its turn.
template <int kHeadDim, int kState>
__device__ inline void fetch_head(const GradientOp& op, const GradientTask& task, int turn,
                                  GradientMemory<kHeadDim, kState>& memory) {
  const int head = task.head + turn;
  const std::int64_t state = task.index(op.shape, head) * kHeadDim * kState;
  SharedTile<kHeadDim>{memory.x[turn % 2], 0}.template copy_rows<kGradientThreads, kTile>(
      op.in.x.row(task.row) + head * kHeadDim, op.in.x.stride, task.length);
  SharedTile<kHeadDim>{memory.dy[turn % 2], 0}.template copy_rows<kGradientThreads, kTile>(
      op.dy.row(task.row) + head * kHeadDim, op.dy.stride, task.length);
  SharedTile<kState>{memory.dstate[turn % 2], 0}.template copy_rows<kGradientThreads, kHeadDim>(
      op.dstates + state, kState, kHeadDim);
  SharedTile<kState>{memory.state[turn % 2], 0}.template copy_rows<kGradientThreads, kHeadDim>(
      op.states + state, kState, kHeadDim);
  commit_copies();
}

/// One warp: from all shares of the head's steps to ddt and the sums for the parameters.
template <int kHeadDim, int kState>
__device__ inline void finish_head(const GradientOp& op, const GradientTask& task, int turn,
                                   GradientMemory<kHeadDim, kState>& memory) {
  const int head = task.head + turn;
  const float rate = -expf(op.in.a_log[head]);
  const int lane = static_cast<int>(threadIdx.x);
  const StepGradients steps = sum_step_gradients(turn, memory);
  float dt_bias_sum = 0;
  float a_sum = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane + i;
    const float ddt = (steps.ddt[i] + steps.dlog[i] * rate) * sigmoid(memory.steps[turn % 2].raw[t]);
    if (t >= task.length) continue;
    assign(op.ddt.row(task.row + t)[head], ddt);
    dt_bias_sum += ddt;
    a_sum += steps.dlog[i] * memory.steps[turn % 2].dt[t];
  }
  dt_bias_sum = warp_sum(dt_bias_sum);
  a_sum = warp_sum(a_sum);
  const float d_sum = warp_sum(lane < std::ssize(memory.d_sums) ? memory.d_sums[lane] : 0.0f);
  if (lane == 0) {
    float* sums = op.sums + (task.batch * task.tiles + task.tile) * 3 * op.shape.heads + head;
    sums[0] = dt_bias_sum;
    sums[op.shape.heads] = rate * a_sum;  // d a / d A_log = a
    sums[2 * op.shape.heads] = d_sum;
  }
}

template <int kState>
__device__ inline void store_keys(const GradientTask& task, const GradientPlace& place, const View<Bf16>& out,
                                  const KeyStrip<kState>& values) {
  const int t = place.token + place.row;
  Bf16* first = out.row(task.row + t) + task.group * kState + place.quarter * (kState / 4);
  store_rows(values, t < task.length ? first : nullptr,
             t + 8 < task.length ? first + 8 * out.stride : nullptr);
}

/// Those of the warp's tokens and a part of 16 channels.
template <int kHeadDim, int kState>
__device__ inline void store_input_gradients(const GradientOp& op, const GradientTask& task,
                                             const GradientPlace& place, int part, int turn,
                                             GradientMemory<kHeadDim, kState>& memory) {
  const int head = task.head + turn;
  PairStrip dx = {};
  differentiate_inputs(place, part, turn, memory.steps[turn % 2], op.in.d[head], memory, dx);
  const int s = place.token + place.row;
  Bf16* out = op.dx.row(task.row + s) + head * kHeadDim + part * 16;
  store_rows(dx, s < task.length ? out : nullptr, s + 8 < task.length ? out + 8 * op.dx.stride : nullptr);
}

template <int kHeadDim, int kState>
__global__ void __launch_bounds__(kGradientThreads, 1) gradients_kernel(GradientOp op) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& memory = *reinterpret_cast<GradientMemory<kHeadDim, kState>*>(shared_bytes);
  const GradientTask task(op.shape);
  const bool is_first_warp = threadIdx.x < kWarp;
  SharedTile<kState>{memory.b, 0}.template copy_rows<kGradientThreads, kTile>(
      op.in.b.row(task.row) + task.group * kState, op.in.b.stride, task.length);
  SharedTile<kState>{memory.c, 0}.template copy_rows<kGradientThreads, kTile>(
      op.in.c.row(task.row) + task.group * kState, op.in.c.stride, task.length);
  fetch_head(op, task, 0, memory);
  const ScanSteps all_steps = steps_of(op.in);
  RawSteps raw;
  if (is_first_warp) {
    raw.load(all_steps, task.row, task.tile * kTile, task.head, task.length);
    raw.compute(all_steps, task.head, memory.steps[0]);
  }
  wait_for_copies<0>();
  __syncthreads();
  PairStrip products = {};   // C . B^T
  PairStrip dproducts = {};  // its gradient, summed over heads
  KeyStrip<kState> db = {};
  KeyStrip<kState> dc = {};
  multiply_keys(GradientPlace(static_cast<int>(threadIdx.x)), memory, products);

  for (int turn = 0; turn < task.heads; ++turn) {
    const GradientPlace place(hidden(static_cast<int>(threadIdx.x)));
    const int head = task.head + turn;
    const bool is_last = turn + 1 == task.heads;
    const TileSteps& steps = memory.steps[turn % 2];
    wait_for_copies<0>();
    __syncthreads();  // inputs and steps are there; nobody reads the buffers of the head before
    multiply_states(turn, memory);
    if (!is_last) fetch_head(op, task, turn + 1, memory);
    if (is_first_warp) {
      if (turn > 0) finish_head(op, task, turn - 1, memory);
      if (!is_last) raw.load(all_steps, task.row, task.tile * kTile, head + 1, task.length);
    }
    differentiate_mix(place, turn, steps, memory, products, dproducts);
    __syncthreads();  // mix and shares are there
    store_input_gradients(op, task, place, place.quarter, turn, memory);
    if (memory.kParts > kQuarters && place.token == 16 * place.quarter)
      store_input_gradients(op, task, place, kQuarters, turn, memory);
    differentiate_keys(place, turn, steps, memory, db, dc);
    sum_segments(memory);
    if (is_first_warp && !is_last) raw.compute(all_steps, head + 1, memory.steps[(turn + 1) % 2]);
    __syncthreads();  // the segments' sums are there
    sum_below(steps, memory);
    __syncthreads();  // so are those of whole columns
    sum_decays(memory);
  }
  const GradientPlace place(hidden(static_cast<int>(threadIdx.x)));
  store_pairs(place, dproducts, memory);
  __syncthreads();
  if (is_first_warp) finish_head(op, task, task.heads - 1, memory);
  differentiate_products(place, memory, db, dc);
  store_keys<kState>(task, place, op.db, db);
  store_keys<kState>(task, place, op.dc, dc);
}

template <int kHeadDim, int kState>
void launch_gradients(Device& device, const GradientOp& op) {
  constexpr std::size_t kBytes = sizeof(GradientMemory<kHeadDim, kState>);
  const std::int64_t tiles = ceil_div(op.shape.sequence, kTile);
  launch_with_shared(device, op.shape.batch * tiles * op.shape.groups, kGradientThreads, kBytes,
                     gradients_kernel<kHeadDim, kState>, op);
}

}  // namespace

bool fits_tensor_cores(const Device& device, const ScanBackward& op) {
  return fits_tensor_cores(device, ScanForward{op.shape, op.in, op.dx, nullptr}) &&
         is_wide(op.chunk_states) && is_wide(op.dy) && is_wide(op.db) && is_wide(op.dc) &&
         device.properties().sharedMemPerBlockOptin >= with_sizes(op.shape, [](auto head_dim, auto state) {
           return sizeof(GradientMemory<head_dim, state>);
         });
}

void scan_mma_gradients(Device& device, const ScanBackward& op, const Bf16* states, const Bf16* dstates,
                        float* sums) {
  const GradientOp gradient_op{op.shape,
                               views_of<Bf16>(op.in),
                               view_as<Bf16>(op.dy),
                               states,
                               dstates,
                               view_as<Bf16>(op.dx),
                               view_as<Bf16>(op.db),
                               view_as<Bf16>(op.dc),
                               view_as<Bf16>(op.ddt),
                               sums};
  with_sizes(op.shape,
             [&](auto head_dim, auto state) { launch_gradients<head_dim, state>(device, gradient_op); });
}

}  // namespace tetrad::cuda
