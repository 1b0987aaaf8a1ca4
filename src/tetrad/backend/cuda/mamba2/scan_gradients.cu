// SPDX-License-Identifier: Apache-2.0
// With E[t, s] the product of the decays s + 1 … t, H the state before a tile and dH' the gradient of the
// state after it (backend/cpu/scan_backward.cpp has the same):
//   y[t] = sum over s <= t of (C[t] . B[s]) E[t, s] dt[s] x[s]  +  E[t, before] H . C[t]  +  D x[t]
//   H'   = E[last, before] H  +  sum over s of E[last, s] dt[s] x[s] outer B[s].
// One kernel takes a tile of a head and gives dx and ddt; a second takes a tile of a group, whose heads share
// B and C, and gives db and dc.

#include "tetrad/backend/cuda/mamba2/scan_kernels.cuh"

#include "tetrad/backend/cuda/common/launch.cuh"
#include "tetrad/backend/cuda/common/math.cuh"
#include "tetrad/backend/cuda/common/reduce.cuh"

namespace tetrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <typename T>
struct GradientViews {
  ScanViews<T> in;
  View<const T> dy;
  View<T> dx, db, dc, ddt;
};

/// Shared memory of a tile of a head. The matrices' rows are padded: columns are read, too.
struct HeadTile {
  float mix[kTile][kTile + 1];     //!< C . B^T, then what y takes of each x
  float shares[kTile][kTile + 1];  //!< gradient of mix, then what it adds to the decays' logarithms
  float dt[kTile], decay[kTile];
  float left[kTile];      //!< E[t, before]
  float reaching[kTile];  //!< E[last, t]
  float ddt[kTile];       //!< gradients of dt …
  float dlog[kTile];      //!< … and of the logarithms of the decays
  float later[kTile];     //!< y's shares that come from the state before, to be summed over later tokens
  float earlier[kTile];   //!< those of the state after, to be summed over earlier tokens
  float reduce[kWarps];
};

/// Where a block works.
struct HeadTask {
  std::int64_t tile, head, group;
  std::int64_t index;  //!< number of (sequence, tile, head)
  std::int64_t row;    //!< the tile's first token
  int length;
  bool is_first, is_last;

  __device__ HeadTask(const Mamba2Shape& shape, const Tiles& tiles, std::int64_t of_index)
      : tile(of_index / shape.heads % tiles.count),
        head(of_index % shape.heads),
        group(head / (shape.heads / shape.groups)),
        index(of_index) {
    const Tiles::Span span = tiles.span(tile);
    row = of_index / shape.heads / tiles.count * shape.sequence + span.first;
    length = span.is_empty() ? 0 : static_cast<int>(span.size());
    is_first = span.first == 0;
    is_last = span.last == shape.sequence;
  }
};

/// dt, decays and their products.
__device__ inline void load_steps(const Mamba2Shape& shape, const HeadTask& task,
                                  const ScanGradientScratch& scratch, HeadTile& m) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < task.length) {
    m.dt[t] = scratch.steps.dt[(task.row + t) * shape.heads + task.head];
    m.decay[t] = scratch.steps.decay[(task.row + t) * shape.heads + task.head];
    m.later[t] = 0;
    m.earlier[t] = 0;
  }
  __syncthreads();
  if (t == 0) {
    float product = 1;
    for (int i = 0; i < task.length; ++i) m.left[i] = product *= m.decay[i];
  } else if (t == kWarp) {
    float product = 1;
    for (int i = task.length - 1; i >= 0; --i) {
      m.reaching[i] = product;
      product *= m.decay[i];
    }
  }
  __syncthreads();
  if (t < task.length) {
    scratch.left[(task.row + t) * shape.heads + task.head] = m.left[t];
    scratch.weight[(task.row + t) * shape.heads + task.head] = m.reaching[t] * m.dt[t];
  }
}

/// mix = C . B^T and shares = dy . x^T in the lower triangle.
template <typename T>
__device__ inline void multiply_pairs(const Mamba2Shape& shape, const HeadTask& task,
                                      const GradientViews<T>& views, HeadTile& m) {
  for (int i = static_cast<int>(threadIdx.x); i < task.length * task.length; i += kThreads) {
    const int t = i / task.length;
    const int s = i % task.length;
    if (s > t) continue;
    const T* c = views.in.c.row(task.row + t) + task.group * shape.state;
    const T* b = views.in.b.row(task.row + s) + task.group * shape.state;
    const T* dy = views.dy.row(task.row + t) + task.head * shape.head_dim;
    const T* x = views.in.x.row(task.row + s) + task.head * shape.head_dim;
    float product = 0;
    for (std::int64_t n = 0; n < shape.state; ++n) product += to_f32(c[n]) * to_f32(b[n]);
    float gradient = 0;
    for (std::int64_t p = 0; p < shape.head_dim; ++p) gradient += to_f32(dy[p]) * to_f32(x[p]);
    m.mix[t][s] = product;
    m.shares[t][s] = gradient;
  }
  __syncthreads();
}

/// A thread for each column s. `shares` becomes, for t > s, the sum over all t' >= t of dmix * mix; summed
/// over s < t, this is the gradient of the logarithm of decay t. Not as a difference of sums over rows and
/// columns: a step so large that nothing is left after it must get exactly nothing.
__device__ inline void differentiate_mix(const HeadTask& task, HeadTile& m, float* dproducts, int stride) {
  const int s = static_cast<int>(threadIdx.x);
  if (s < task.length) {
    float decays = 1;
    float through = 0;
    for (int t = s; t < task.length; ++t) {
      if (t > s) decays *= m.decay[t];
      const float decay_dt = decays * m.dt[s];
      const float product = m.mix[t][s];
      const float gradient = m.shares[t][s];
      dproducts[t * stride + s] = gradient * decay_dt;
      through += gradient * (product * decays);
      m.mix[t][s] = product * decay_dt;
      m.shares[t][s] = gradient * (product * decay_dt);
    }
    m.ddt[s] = through;
    float below = 0;
    for (int t = task.length - 1; t > s; --t) m.shares[t][s] = below += m.shares[t][s];
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r < task.length) {
    float sum = 0;
    for (int c = 0; c < r; ++c) sum += m.shares[r][c];
    m.dlog[r] = sum;
  }
  __syncthreads();
}

/// Through E[t, before] H . C[t]: a warp for each token.
template <typename T>
__device__ inline void differentiate_state_before(const Mamba2Shape& shape, const HeadTask& task,
                                                  const GradientViews<T>& views, const float* h,
                                                  HeadTile& m) {
  for (int t = static_cast<int>(threadIdx.x) / kWarp; t < task.length; t += kWarps) {
    const T* c = views.in.c.row(task.row + t) + task.group * shape.state;
    const T* dy = views.dy.row(task.row + t) + task.head * shape.head_dim;
    float sum = 0;
    for (std::int64_t n = threadIdx.x % kWarp; n < shape.state; n += kWarp) {
      float along = 0;
      for (std::int64_t p = 0; p < shape.head_dim; ++p) along += to_f32(dy[p]) * h[p * shape.state + n];
      sum += along * to_f32(c[n]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) m.later[t] = m.left[t] * sum;
  }
}

/// dx, and the shares of the steps through the state after the tile (dh null: there is none): a warp for each
/// token. Returns the thread's share of D's gradient.
template <typename T>
__device__ inline float differentiate_inputs(const Mamba2Shape& shape, const HeadTask& task,
                                             const GradientViews<T>& views, const float* dh, HeadTile& m) {
  const float d = views.in.d[task.head];
  const std::int64_t column = task.head * shape.head_dim;
  float d_share = 0;
  for (int s = static_cast<int>(threadIdx.x) / kWarp; s < task.length; s += kWarps) {
    const T* b = views.in.b.row(task.row + s) + task.group * shape.state;
    const float weight = m.reaching[s] * m.dt[s];
    float share = 0;
    for (std::int64_t p = threadIdx.x % kWarp; p < shape.head_dim; p += kWarp) {
      const float x = to_f32(views.in.x.row(task.row + s)[column + p]);
      const float dy = to_f32(views.dy.row(task.row + s)[column + p]);
      float from_state = 0;
      if (dh != nullptr)
        for (std::int64_t n = 0; n < shape.state; ++n) from_state += to_f32(b[n]) * dh[p * shape.state + n];
      float dx = weight * from_state + d * dy;
      for (int t = s; t < task.length; ++t)
        dx += m.mix[t][s] * to_f32(views.dy.row(task.row + t)[column + p]);
      assign(views.dx.row(task.row + s)[column + p], dx);
      share += from_state * x;
      d_share += dy * x;
    }
    share = warp_sum(share);
    if (threadIdx.x % kWarp == 0) {
      m.ddt[s] += m.reaching[s] * share;
      m.earlier[s] = weight * share;
    }
  }
  return d_share;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    head_gradients_kernel(Mamba2Shape shape, Tiles tiles, GradientViews<T> views,
                          ScanGradientScratch scratch) {
  __shared__ HeadTile m;
  const HeadTask task(shape, tiles, blockIdx.x);
  float* sums = scratch.sums + task.index / shape.heads * 3 * shape.heads + task.head;
  const int thread = static_cast<int>(threadIdx.x);
  if (task.length == 0) {
    if (thread < 3) sums[thread * shape.heads] = 0;
    return;
  }
  const std::int64_t state_size = shape.head_dim * shape.state;
  const float* h = task.is_first ? nullptr : scratch.states + task.index * state_size;
  const float* dh = task.is_last ? nullptr : scratch.dstates + task.index * state_size;
  load_steps(shape, task, scratch, m);
  multiply_pairs(shape, task, views, m);
  differentiate_mix(task, m, scratch.dproducts + task.index * tiles.length * tiles.length,
                    static_cast<int>(tiles.length));
  if (h != nullptr) differentiate_state_before(shape, task, views, h, m);
  const float d_sum = block_sum(differentiate_inputs(shape, task, views, dh, m), m.reduce);
  float across = 0;  // through E[last, before] H, of which all decays are factors
  if (h != nullptr && dh != nullptr)
    for (std::int64_t i = thread; i < state_size; i += kThreads) across += h[i] * dh[i];
  across = block_sum(across, m.reduce) * m.left[task.length - 1];

  const float a = -expf(views.in.a_log[task.head]);
  float dt_bias_share = 0;
  float a_share = 0;
  if (thread < task.length) {
    float dlog = m.dlog[thread] + across;
    for (int t = thread; t < task.length; ++t) dlog += m.later[t];
    for (int s = 0; s < thread; ++s) dlog += m.earlier[s];
    const std::int64_t row = task.row + thread;
    const float raw = to_f32(views.in.dt.row(row)[task.head]) + views.in.dt_bias[task.head];
    const float ddt = (m.ddt[thread] + dlog * a) * sigmoid(raw);
    assign(views.ddt.row(row)[task.head], ddt);
    dt_bias_share = ddt;
    a_share = dlog * m.dt[thread];
  }
  const float dt_bias_sum = block_sum(dt_bias_share, m.reduce);
  const float a_sum = block_sum(a_share, m.reduce);
  if (thread == 0) {
    sums[0] = dt_bias_sum;
    sums[shape.heads] = a * a_sum;  // d a / d A_log = a
    sums[2 * shape.heads] = d_sum;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_gradients_kernel(Mamba2Shape shape, Tiles tiles, GradientViews<T> views,
                           ScanGradientScratch scratch) {
  __shared__ float dproducts[kTile][kTile + 1];
  const std::int64_t heads = shape.heads / shape.groups;
  const std::int64_t group = blockIdx.x % shape.groups;
  const HeadTask task(shape, tiles, blockIdx.x / shape.groups * shape.heads + group * heads);
  const std::int64_t pairs = tiles.length * tiles.length;
  for (int i = static_cast<int>(threadIdx.x); i < task.length * task.length; i += kThreads) {
    const int t = i / task.length;
    const int s = i % task.length;
    float sum = 0;
    if (s <= t)
      for (std::int64_t head = 0; head < heads; ++head)
        sum += scratch.dproducts[(task.index + head) * pairs + t * tiles.length + s];
    dproducts[t][s] = sum;
  }
  __syncthreads();
  const std::int64_t state_size = shape.head_dim * shape.state;
  for (std::int64_t i = threadIdx.x; i < task.length * shape.state; i += kThreads) {
    const int t = static_cast<int>(i / shape.state);
    const std::int64_t n = i % shape.state;
    const std::int64_t row = task.row + t;
    float db = 0;
    float dc = 0;
    for (std::int64_t head = task.head; head < task.head + heads; ++head) {
      const float* h = scratch.states + (task.index + head - task.head) * state_size + n;
      const float* dh = scratch.dstates + (task.index + head - task.head) * state_size + n;
      const T* x = views.in.x.row(row) + head * shape.head_dim;
      const T* dy = views.dy.row(row) + head * shape.head_dim;
      float from_before = 0;
      float from_after = 0;
      for (std::int64_t p = 0; p < shape.head_dim; ++p) {
        if (!task.is_first) from_before += to_f32(dy[p]) * h[p * shape.state];
        if (!task.is_last) from_after += to_f32(x[p]) * dh[p * shape.state];
      }
      dc += scratch.left[row * shape.heads + head] * from_before;
      db += scratch.weight[row * shape.heads + head] * from_after;
    }
    const std::int64_t column = group * shape.state + n;
    for (int s = 0; s <= t; ++s) dc += dproducts[t][s] * to_f32(views.in.b.row(task.row + s)[column]);
    for (int u = t; u < task.length; ++u)
      db += dproducts[u][t] * to_f32(views.in.c.row(task.row + u)[column]);
    assign(views.db.row(row)[column], db);
    assign(views.dc.row(row)[column], dc);
  }
}

}  // namespace

void scan_gradients(Device& device, const ScanBackward& op, const Tiles& tiles,
                    const ScanGradientScratch& scratch) {
  const Mamba2Shape& shape = op.shape;
  with_type(op.in.x.dtype, [&]<typename T>(T) {
    const GradientViews<T> views{views_of<T>(op.in), view_as<T>(op.dy), view_as<T>(op.dx),
                                 view_as<T>(op.db),  view_as<T>(op.dc), view_as<T>(op.ddt)};
    launch(device, shape.batch * tiles.count * shape.heads, kThreads, 0, head_gradients_kernel<T>, shape,
           tiles, views, scratch);
    launch(device, shape.batch * tiles.count * shape.groups, kThreads, 0, group_gradients_kernel<T>, shape,
           tiles, views, scratch);
  });
}

}  // namespace tetrad::cuda
