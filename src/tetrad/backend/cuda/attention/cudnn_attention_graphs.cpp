// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/attention/cudnn_attention_graphs.h"

#include <limits>

namespace tetrad::cuda {
namespace {

using Extents = CudnnGraph::Extents;
using Tensor = CudnnGraph::Tensor;

/// A graph of attention and the tensors that both passes have.
class Builder {
 public:
  explicit Builder(const AttentionGraphShape& shape) : shape_(shape) {}

  Extents scores() const { return {shape_.batch, shape_.heads, shape_.sequence, shape_.sequence}; }
  Extents per_token() const { return {shape_.batch, shape_.heads, shape_.sequence, 1}; }
  Extents queries() const { return {shape_.batch, shape_.heads, shape_.sequence, shape_.head_dim}; }

  /// Heads that lie side by side in the rows of a matrix of tokens.
  Tensor rows(AttentionTensor id, std::int64_t heads, std::int64_t stride) {
    return graph.memory(id, {shape_.batch, heads, shape_.sequence, shape_.head_dim},
                        {shape_.sequence * stride, shape_.head_dim, stride, 1}, CUDNN_DATA_BFLOAT16);
  }
  Tensor transposed_rows(AttentionTensor id, std::int64_t heads, std::int64_t stride) {
    return graph.memory(id, {shape_.batch, heads, shape_.head_dim, shape_.sequence},
                        {shape_.sequence * stride, shape_.head_dim, 1, stride}, CUDNN_DATA_BFLOAT16);
  }
  Tensor statistics(AttentionTensor id) {
    return graph.memory(id, per_token(), {shape_.heads * shape_.sequence, shape_.sequence, 1, 1},
                        CUDNN_DATA_FLOAT);
  }

  Tensor product(const Tensor& a, const Tensor& b) {
    const Tensor out = graph.between(scores());
    graph.multiply(a, b, out);
    return out;
  }

  /// Minus infinity where the key comes after the query.
  Tensor causal(const Tensor& in) {
    const Tensor query = graph.index(in, 2);
    const Tensor key = graph.index(in, 3);
    const Tensor seen = graph.between(scores(), CUDNN_DATA_BOOLEAN);
    graph.apply(CUDNN_POINTWISE_CMP_GE, {query, key}, seen, CUDNN_DATA_BOOLEAN);
    return graph.apply(CUDNN_POINTWISE_BINARY_SELECT,
                       {in, graph.constant(-std::numeric_limits<float>::infinity()), seen});
  }

  /// In BF16, queries and keys exchanged: what the gradients of keys and values multiply by.
  Tensor by_keys(const Tensor& in) {
    const std::int64_t length = shape_.sequence;
    const Tensor out = graph.between(scores(), {shape_.heads * length * length, length * length, 1, length},
                                     CUDNN_DATA_BFLOAT16);
    graph.reshape(in, out);
    return out;
  }

  /// The gradient of keys or values, summed over the heads that share them.
  void key_gradient(const Tensor& weights, const Tensor& in, const Tensor& out) {
    if (shape_.heads == shape_.kv_heads) {
      graph.multiply(weights, in, out);
      return;
    }
    const Tensor every_head = graph.between(queries(), CUDNN_DATA_BFLOAT16);
    graph.multiply(weights, in, every_head);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, every_head, out);
  }

  CudnnGraph graph;

 private:
  AttentionGraphShape shape_;
};

}  // namespace

CudnnGraph attention_forward_graph(const AttentionGraphShape& shape) {
  Builder with(shape);
  CudnnGraph& graph = with.graph;
  const Tensor q = with.rows(q_tensor, shape.heads, shape.q);
  const Tensor k = with.transposed_rows(k_tensor, shape.kv_heads, shape.k);
  const Tensor v = with.rows(v_tensor, shape.kv_heads, shape.v);
  const Tensor out = with.rows(out_tensor, shape.heads, shape.out);
  const Tensor log_sum_exp = with.statistics(log_sum_exp_tensor);

  const Tensor scaled = graph.apply(CUDNN_POINTWISE_MUL, {with.product(q, k), graph.constant(shape.scale)});
  const Tensor masked = with.causal(scaled);
  const Tensor largest = graph.between(with.per_token());
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, largest);
  const Tensor exponentials =
      graph.apply(CUDNN_POINTWISE_EXP, {graph.apply(CUDNN_POINTWISE_SUB, {masked, largest})});
  const Tensor sum = graph.between(with.per_token());
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
  graph.apply(CUDNN_POINTWISE_ADD, {largest, graph.apply(CUDNN_POINTWISE_LOG, {sum})}, log_sum_exp);
  const Tensor weights = graph.between(with.scores(), CUDNN_DATA_BFLOAT16);
  graph.apply(CUDNN_POINTWISE_DIV, {exponentials, sum}, weights);
  graph.multiply(weights, v, out);
  return std::move(graph);
}

CudnnGraph attention_backward_graph(const AttentionGraphShape& shape) {
  Builder with(shape);
  CudnnGraph& graph = with.graph;
  const Tensor q = with.rows(q_tensor, shape.heads, shape.q);
  const Tensor k = with.transposed_rows(k_tensor, shape.kv_heads, shape.k);
  const Tensor v = with.transposed_rows(v_tensor, shape.kv_heads, shape.v);
  const Tensor out = with.rows(out_tensor, shape.heads, shape.out);
  const Tensor dout = with.rows(dout_tensor, shape.heads, shape.dout);
  const Tensor log_sum_exp = with.statistics(log_sum_exp_tensor);
  const Tensor scale = graph.constant(shape.scale);

  // The sum of out * dout is what softmax's derivative subtracts. The factor 1 stands where the engines
  // expect that of dropout.
  const Tensor delta = with.statistics(delta_tensor);
  const Tensor sum = graph.between(with.per_token());
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.apply(CUDNN_POINTWISE_MUL, {dout, out}), sum);
  graph.apply(CUDNN_POINTWISE_MUL, {sum, graph.constant(1)}, delta);

  const Tensor scaled = graph.apply(CUDNN_POINTWISE_MUL, {with.product(q, k), scale});
  const Tensor masked = with.causal(graph.apply(CUDNN_POINTWISE_SUB, {scaled, log_sum_exp}));
  const Tensor weights = graph.apply(CUDNN_POINTWISE_EXP, {masked});
  with.key_gradient(with.by_keys(weights), dout, with.rows(dv_tensor, shape.kv_heads, shape.dv));

  const Tensor distances = graph.apply(CUDNN_POINTWISE_SUB, {with.product(dout, v), delta});
  const Tensor dscores =
      graph.apply(CUDNN_POINTWISE_MUL, {graph.apply(CUDNN_POINTWISE_MUL, {distances, weights}), scale});
  with.key_gradient(with.by_keys(dscores), q, with.rows(dk_tensor, shape.kv_heads, shape.dk));

  const Tensor keys = graph.between({shape.batch, shape.kv_heads, shape.sequence, shape.head_dim},
                                    {shape.sequence * shape.k, shape.head_dim, shape.k, 1}, CUDNN_DATA_FLOAT);
  graph.reshape(k, keys);
  const Tensor dq = with.rows(dq_tensor, shape.heads, shape.dq);
  if (shape.deterministic) {
    graph.multiply(dscores, keys, dq);
  } else {
    // Blocks of keys add to this in whatever order they finish.
    const std::int64_t head = shape.sequence * shape.head_dim;
    const Tensor dq_sum = graph.memory(dq_sum_tensor, with.queries(),
                                       {shape.heads * head, head, shape.head_dim, 1}, CUDNN_DATA_FLOAT);
    graph.multiply(dscores, keys, dq_sum);
    graph.apply(CUDNN_POINTWISE_IDENTITY, {dq_sum}, dq);
  }
  return std::move(graph);
}

}  // namespace tetrad::cuda
