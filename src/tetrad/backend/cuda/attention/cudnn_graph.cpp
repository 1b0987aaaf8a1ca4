// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/attention/cudnn_graph.h"

#include <algorithm>
#include <utility>

#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

constexpr std::int64_t kTensorAlignment = 16;

std::string last_words(cudnnStatus_t result) {
  std::array<char, 1024> text = {};
  cudnnGetLastErrorString(text.data(), text.size());
  return fmt::format("{} {}", cudnnGetErrorString(result), text.data());
}

CudnnGraph::Extents packed(const CudnnGraph::Extents& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

/// The engine behind a configuration, and what cuDNN notes about it.
struct Engine {
  std::int64_t number = -1;
  std::vector<cudnnBackendNumericalNote_t> notes;

  explicit Engine(const CudnnDescriptor& configuration) {
    const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.get();
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
    check(
        cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &number));
    notes.resize(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    check(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()));
    notes.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, std::ssize(notes))));
  }

  bool has(cudnnBackendNumericalNote_t note) const {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  }
  std::string name() const {
    std::string text = fmt::format("engine {}", number);
    for (const cudnnBackendNumericalNote_t note : notes)
      text += fmt::format(", note {}", static_cast<int>(note));
    return text;
  }
};

/// How a configuration sets what its engine leaves open: kinds and values.
using Knobs = std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>>;

Knobs knobs_of(const CudnnDescriptor& configuration) {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  std::vector<CudnnDescriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).get());
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()));
  Knobs knobs(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) {
    auto& [kind, value] = knobs[i];
    std::int64_t one = 0;
    check(cudnnBackendGetAttribute(raw[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                                   &kind));
    check(cudnnBackendGetAttribute(raw[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                                   &value));
  }
  std::ranges::sort(knobs);
  return knobs;
}

/// Whether both give the same kernel.
bool are_alike(const CudnnDescriptor& one, const CudnnDescriptor& other) {
  return Engine(one).number == Engine(other).number && knobs_of(one) == knobs_of(other);
}

/// cuDNN's configurations for a graph, those that it holds for fastest first.
std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristic.finalize();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data()));
  found.erase(found.begin() + std::min<std::ptrdiff_t>(count, std::ssize(found)), found.end());
  return found;
}

}  // namespace

void check(cudnnStatus_t result, SourcePlace where) {
  if (result != CUDNN_STATUS_SUCCESS)
    throw Error(
        fmt::format("cuDNN: {} ({}, {}:{})", last_words(result), where.function, where.file, where.line),
        ExitCode::failure);
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t created = nullptr;
  check(cudnnBackendCreateDescriptor(type, &created));
  descriptor_.reset(created);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) const {
  check(cudnnBackendSetAttribute(get(), name, type, count, values));
}

void CudnnDescriptor::finalize() const { check(cudnnBackendFinalize(get())); }

void CudnnPlan::execute(cudnnHandle_t handle, std::span<const CudnnBinding> bindings, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const CudnnBinding& binding : bindings) {
    ids.push_back(binding.id);
    addresses.push_back(binding.address);
  }
  for (const Constant& constant : constants_) {
    ids.push_back(constant.id);
    addresses.push_back(const_cast<float*>(&constant.value));  // only read; the interface has no const
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(addresses),
           addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids));
  pack.finalize();
  check(cudnnBackendExecute(handle, parts_.back().get(), pack.get()));
}

CudnnGraph::Tensor CudnnGraph::tensor(CudnnDescriptor descriptor, std::int64_t id, const Extents& dims,
                                      const Extents& strides, cudnnDataType_t type) {
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(dims));
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides));
  descriptor.finalize();
  return {id, dims, parts_.emplace_back(std::move(descriptor)).get()};
}

CudnnGraph::Tensor CudnnGraph::memory(std::int64_t id, const Extents& dims, const Extents& strides,
                                      cudnnDataType_t type) {
  return tensor(CudnnDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR), id, dims, strides, type);
}

CudnnGraph::Tensor CudnnGraph::between(const Extents& dims, cudnnDataType_t type) {
  return between(dims, packed(dims), type);
}

CudnnGraph::Tensor CudnnGraph::between(const Extents& dims, const Extents& strides, cudnnDataType_t type) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  return tensor(std::move(descriptor), next_id_++, dims, strides, type);
}

CudnnGraph::Tensor CudnnGraph::constant(float value) {
  constants_.push_back({next_id_, value});
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return tensor(std::move(descriptor), next_id_++, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT);
}

void CudnnGraph::add(CudnnDescriptor operation) {
  operation.finalize();
  operations_.push_back(parts_.emplace_back(std::move(operation)).get());
}

void CudnnGraph::multiply(const Tensor& a, const Tensor& b, const Tensor& out) {
  CudnnDescriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  product.finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  parts_.push_back(std::move(product));
  add(std::move(operation));
}

void CudnnGraph::add_pointwise(CudnnDescriptor function, std::initializer_list<Tensor> inputs,
                               const Tensor& out) {
  function.finalize();
  constexpr std::array kInputs = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
  std::size_t place = 0;
  for (const Tensor& input : inputs) operation.set(kInputs.at(place++), input.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out.descriptor);
  parts_.push_back(std::move(function));
  add(std::move(operation));
}

void CudnnGraph::apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, const Tensor& out,
                       cudnnDataType_t arithmetic) {
  CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, mode);
  function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, arithmetic);
  add_pointwise(std::move(function), inputs, out);
}

CudnnGraph::Tensor CudnnGraph::apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs) {
  const Tensor out = between(inputs.begin()->dims);
  apply(mode, inputs, out);
  return out;
}

CudnnGraph::Tensor CudnnGraph::index(const Tensor& like, std::int64_t dimension) {
  const Tensor out = between(like.dims, CUDNN_DATA_INT32);
  CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  function.set(CUDNN_ATTR_POINTWISE_AXIS, dimension);
  add_pointwise(std::move(function), {like}, out);
  return out;
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t operation, const Tensor& in, const Tensor& out) {
  CudnnDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, operation);
  reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  reduction.finalize();
  CudnnDescriptor node(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  node.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, in.descriptor);
  node.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out.descriptor);
  parts_.push_back(std::move(reduction));
  add(std::move(node));
}

void CudnnGraph::reshape(const Tensor& in, const Tensor& out) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, in.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out.descriptor);
  add(std::move(operation));
}

CudnnPlan CudnnGraph::plan(cudnnHandle_t handle, bool deterministic, const CudnnPlan* like) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const cudnnBackendDescriptor_t>(operations_));
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.finalize();
  parts_.push_back(std::move(graph));

  std::string refusals;
  for (CudnnDescriptor& configuration : configurations(parts_.back())) {
    const Engine engine(configuration);
    if (deterministic && engine.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
      refusals += fmt::format("; {} is not deterministic", engine.name());
      continue;
    }
    if (like != nullptr && !are_alike(configuration, like->configuration())) {
      refusals += fmt::format("; {} is another kernel", engine.name());
      continue;
    }
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (const cudnnStatus_t result = cudnnBackendFinalize(plan.get()); result != CUDNN_STATUS_SUCCESS) {
      refusals += fmt::format("; {}: {}", engine.name(), last_words(result));
      continue;
    }
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                   &count, &bytes));
    CudnnPlan made;
    made.parts_ = std::move(parts_);
    made.parts_.push_back(std::move(configuration));
    made.parts_.push_back(std::move(plan));
    made.constants_ = std::move(constants_);
    made.workspace_bytes_ = static_cast<std::size_t>(bytes);
    return made;
  }
  throw Error("cuDNN has no plan" + refusals, ExitCode::failure);
}

}  // namespace tetrad::cuda
