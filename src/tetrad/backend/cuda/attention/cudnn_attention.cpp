// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/attention/cudnn_attention.h"

#include <cudnn.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tetrad/backend/cuda/attention/cudnn_attention_graphs.h"
#include "tetrad/backend/cuda/attention/cudnn_graph.h"
#include "tetrad/core/error.h"
#include "tetrad/numerics/bf16.h"

namespace tetrad::cuda {
namespace {

constexpr std::size_t kOldestVersion = 91100;  // older ones want another value than minus infinity as mask
constexpr std::int64_t kTile = 128;  // up to 9.15, sequences that do not fill tiles would need a second mask
constexpr std::size_t kAlignment = 256;

std::string version() {
  const std::size_t number = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

template <typename Op>
AttentionGraphShape inputs_of(const Op& op, const CudnnAttentionOptions& options) {
  return {.batch = op.shape.batch,
          .sequence = op.shape.sequence,
          .heads = op.shape.heads,
          .kv_heads = op.shape.kv_heads,
          .head_dim = op.shape.head_dim,
          .scale = op.shape.scale,
          .deterministic = options.deterministic,
          .q = op.q.row_stride,
          .k = op.k.row_stride,
          .v = op.v.row_stride,
          .out = op.out.row_stride};
}

AttentionGraphShape graph_shape(const AttentionForward& op, const CudnnAttentionOptions& options) {
  return inputs_of(op, options);
}

AttentionGraphShape graph_shape(const AttentionBackward& op, const CudnnAttentionOptions& options) {
  AttentionGraphShape shape = inputs_of(op, options);
  shape.dout = op.dout.row_stride;
  shape.dq = op.dq.row_stride;
  shape.dk = op.dk.row_stride;
  shape.dv = op.dv.row_stride;
  return shape;
}

/// A part of a problem that takes `bytes` of workspace as a whole. Heads of one sequence still lie side by
/// side.
AttentionGraphShape part_of(AttentionGraphShape shape, std::size_t bytes, std::int64_t limit) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  const AttentionPart part =
      attention_part(shape.batch, shape.kv_heads, static_cast<std::int64_t>(bytes), limit);
  shape.batch = part.batch;
  shape.kv_heads = part.kv_heads;
  shape.heads = part.kv_heads * group;
  return shape;
}

/// How one pass of attention is done; without a plan it is not.
struct Recipe {
  AttentionGraphShape part = {};
  std::optional<CudnnPlan> plan;
  std::string refusal;
};

using MakeGraph = CudnnGraph (*)(const AttentionGraphShape&);

/// What a context keeps of cuDNN: a handle, on the context's stream, and every recipe so far.
class Library {
 public:
  explicit Library(const Device& device) : stream_(device.stream()) {}

  cudnnHandle_t handle() {
    if (handle_ == nullptr) {
      cudnnHandle_t created = nullptr;
      check(cudnnCreate(&created));
      handle_.reset(created);
      check(cudnnSetStream(created, stream_));
    }
    return handle_.get();
  }

  const Recipe& recipe(MakeGraph make_graph, const AttentionGraphShape& shape, bool by_parts) {
    const auto [found, is_new] =
        recipes_.try_emplace({make_graph == attention_backward_graph, shape, by_parts});
    if (is_new) prepare(make_graph, shape, by_parts, found->second);
    return found->second;
  }

 private:
  void prepare(MakeGraph make_graph, const AttentionGraphShape& shape, bool by_parts, Recipe& recipe) {
    try {
      recipe.part = shape;
      CudnnPlan plan = make_graph(shape).plan(handle(), shape.deterministic);
      const std::size_t whole = plan.workspace_bytes();
      recipe.part = part_of(shape, whole, kAttentionWorkspace);
      if (recipe.part != shape) plan = make_graph(recipe.part).plan(handle(), shape.deterministic);
      recipe.plan = std::move(plan);
      if (by_parts) cut_further(make_graph, part_of(shape, whole, kAttentionWorkspaceByParts), recipe);
    } catch (const Error& error) {
      recipe.refusal = error.what();
    }
  }

  /// Heads know nothing of each other, so that the number of them in a part changes no bit, unless cuDNN
  /// takes another kernel for another number: only the very kernel that the usual part gets will do. Where
  /// there is none, the part stays as it is.
  void cut_further(MakeGraph make_graph, const AttentionGraphShape& part, Recipe& recipe) {
    if (part == recipe.part) return;
    try {
      recipe.plan = make_graph(part).plan(handle(), part.deterministic, &*recipe.plan);
      recipe.part = part;
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): more memory, the same results
    }
  }

  struct Destroy {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };

  cudaStream_t stream_;
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Destroy> handle_;
  std::map<std::tuple<bool, AttentionGraphShape, bool>, Recipe> recipes_;
};

const Recipe& recipe_of(const Device& device, const AttentionForward& op,
                        const CudnnAttentionOptions& options) {
  return device.kept<Library>().recipe(attention_forward_graph, graph_shape(op, options), options.by_parts);
}
const Recipe& recipe_of(const Device& device, const AttentionBackward& op,
                        const CudnnAttentionOptions& options) {
  return device.kept<Library>().recipe(attention_backward_graph, graph_shape(op, options), options.by_parts);
}

/// Scratch memory cut into pieces. One call of Device::scratch() serves them all.
class Pieces {
 public:
  std::size_t add(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  std::size_t add_f32(std::int64_t count) { return add(static_cast<std::size_t>(count) * sizeof(float)); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

/// Where a part of a problem begins: a sequence and a head of keys.
struct Place {
  std::int64_t sequence, kv_head;
};

/// Calls body with the place of each part.
template <typename Body>
void for_each_part(const AttentionShape& shape, const AttentionGraphShape& part, const Body& body) {
  for (std::int64_t sequence = 0; sequence < shape.batch; sequence += part.batch)
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += part.kv_heads)
      body(Place{sequence, kv_head});
}

/// Addresses of a part's tensors in the operation's views.
class Addresses {
 public:
  Addresses(const AttentionShape& shape, const Place& place)
      : shape_(shape), place_(place), head_(place.kv_head * (shape.heads / shape.kv_heads)) {}

  template <typename View>
  void* queries(const View& view) const {
    return at(view, head_);
  }
  template <typename View>
  void* keys(const View& view) const {
    return at(view, place_.kv_head);
  }
  void* statistics(const float* log_sum_exp) const {
    return const_cast<float*>(log_sum_exp) + (place_.sequence * shape_.heads + head_) * shape_.sequence;
  }

 private:
  /// cuDNN takes every address as one that it may write to.
  template <typename View>
  void* at(const View& view, std::int64_t head) const {
    return const_cast<Bf16*>(static_cast<const Bf16*>(view.data)) +
           place_.sequence * shape_.sequence * view.row_stride + head * shape_.head_dim;
  }

  const AttentionShape& shape_;
  Place place_;
  std::int64_t head_;
};

void execute(const Device& device, const CudnnPlan& plan, std::span<const CudnnBinding> bindings,
             void* workspace) {
  plan.execute(device.kept<Library>().handle(), bindings, workspace);
}

}  // namespace

bool cudnn_serves(const Device& device, const AttentionShape& shape) {
  // Other generations get deterministic gradients in other ways, or not at all.
  return device.properties().major == 9 && cudnnGetVersion() >= kOldestVersion && shape.sequence % kTile == 0;
}

bool attention_by_cudnn(Device& device, const AttentionForward& op, const CudnnAttentionOptions& options) {
  const Recipe& recipe = recipe_of(device, op, options);
  if (!recipe.plan) return false;
  Pieces pieces;
  const std::size_t workspace = pieces.add(recipe.plan->workspace_bytes());
  const bool wanted = op.log_sum_exp != nullptr;
  const std::size_t unwanted =
      pieces.add_f32(wanted ? 0 : op.shape.batch * op.shape.heads * op.shape.sequence);
  std::byte* scratch = device.scratch(Device::attention, pieces.bytes());
  const float* log_sum_exp = wanted ? op.log_sum_exp : reinterpret_cast<const float*>(scratch + unwanted);
  for_each_part(op.shape, recipe.part, [&](const Place& place) {
    const Addresses of(op.shape, place);
    const std::array bindings = {CudnnBinding{q_tensor, of.queries(op.q)},
                                 CudnnBinding{k_tensor, of.keys(op.k)}, CudnnBinding{v_tensor, of.keys(op.v)},
                                 CudnnBinding{out_tensor, of.queries(op.out)},
                                 CudnnBinding{log_sum_exp_tensor, of.statistics(log_sum_exp)}};
    execute(device, *recipe.plan, bindings, scratch + workspace);
  });
  return true;
}

bool attention_by_cudnn(Device& device, const AttentionBackward& op, const CudnnAttentionOptions& options) {
  const Recipe& recipe = recipe_of(device, op, options);
  if (!recipe.plan) return false;
  const std::int64_t tokens = recipe.part.batch * recipe.part.heads * recipe.part.sequence;
  Pieces pieces;
  const std::size_t workspace = pieces.add(recipe.plan->workspace_bytes());
  const std::size_t delta = pieces.add_f32(tokens);
  const std::size_t dq_sum = pieces.add_f32(options.deterministic ? 0 : tokens * op.shape.head_dim);
  std::byte* scratch = device.scratch(Device::attention, pieces.bytes());
  for_each_part(op.shape, recipe.part, [&](const Place& place) {
    const Addresses of(op.shape, place);
    std::vector<CudnnBinding> bindings = {{q_tensor, of.queries(op.q)},
                                          {k_tensor, of.keys(op.k)},
                                          {v_tensor, of.keys(op.v)},
                                          {out_tensor, of.queries(op.out)},
                                          {log_sum_exp_tensor, of.statistics(op.log_sum_exp)},
                                          {dout_tensor, of.queries(op.dout)},
                                          {dq_tensor, of.queries(op.dq)},
                                          {dk_tensor, of.keys(op.dk)},
                                          {dv_tensor, of.keys(op.dv)},
                                          {delta_tensor, scratch + delta}};
    if (!options.deterministic) bindings.push_back({dq_sum_tensor, scratch + dq_sum});
    execute(device, *recipe.plan, bindings, scratch + workspace);
  });
  return true;
}

std::string cudnn_attention_state(const Device& device) {
  // A usual shape: where there is no plan for it, there is none for any.
  const AttentionShape shape{1, 1024, 8, 2, 64, 0.125f};
  if (!cudnn_serves(device, shape)) return version() + " is not for this device";
  const MatrixView q{nullptr, DType::bf16, 1024, 512, 768};
  const MatrixView kv{nullptr, DType::bf16, 1024, 128, 768};
  const MutableMatrixView dq{nullptr, DType::bf16, 1024, 512, 768};
  const MutableMatrixView dkv{nullptr, DType::bf16, 1024, 128, 768};
  const AttentionForward forward_op{shape, q, kv, kv, dq};
  const AttentionBackward backward_op{shape, q, kv, kv, q, nullptr, q, dq, dkv, dkv};
  const CudnnAttentionOptions options;
  const Recipe& forward = recipe_of(device, forward_op, options);
  const Recipe& backward = recipe_of(device, backward_op, options);
  if (!forward.plan) return version() + " refuses: " + forward.refusal;
  if (!backward.plan) return version() + ", forward only: " + backward.refusal;
  return version();
}

}  // namespace tetrad::cuda
