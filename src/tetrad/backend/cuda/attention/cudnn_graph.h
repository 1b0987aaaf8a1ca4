// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuDNN's graph interface, as far as attention needs it: operations on tensors of four dimensions, and the
// plan that executes them as one.

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tetrad/backend/cuda/common/error.h"

namespace tetrad::cuda {

/// Throws Error with cuDNN's own words.
void check(cudnnStatus_t result, SourcePlace where = SourcePlace::here());

/// What cuDNN calls the type of an attribute's values.
constexpr auto cudnn_type(const bool*) { return CUDNN_TYPE_BOOLEAN; }
constexpr auto cudnn_type(const float*) { return CUDNN_TYPE_FLOAT; }
constexpr auto cudnn_type(const std::int64_t*) { return CUDNN_TYPE_INT64; }
constexpr auto cudnn_type(const cudnnHandle_t*) { return CUDNN_TYPE_HANDLE; }
constexpr auto cudnn_type(const cudnnDataType_t*) { return CUDNN_TYPE_DATA_TYPE; }
constexpr auto cudnn_type(const cudnnPointwiseMode_t*) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr auto cudnn_type(const cudnnReduceTensorOp_t*) { return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE; }
constexpr auto cudnn_type(const cudnnBackendHeurMode_t*) { return CUDNN_TYPE_HEUR_MODE; }
constexpr auto cudnn_type(const cudnnBackendDescriptor_t*) { return CUDNN_TYPE_BACKEND_DESCRIPTOR; }

/// Owns one of the descriptors that everything in cuDNN's graphs is.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, const T& value) const {
    set(name, std::span<const T>(&value, 1));
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, std::span<const T> values) const {
    set(name, cudnn_type(values.data()), static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) const { set(name, value.get()); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) const;
  void finalize() const;

 private:
  struct Destroy {
    void operator()(cudnnBackendDescriptor_t descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, Destroy> descriptor_;
};

/// Where a tensor of a graph lies in one execution.
struct CudnnBinding {
  std::int64_t id;
  void* address;
};

class CudnnPlan {
 public:
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// The engine and its knobs.
  const CudnnDescriptor& configuration() const { return parts_[parts_.size() - 2]; }

  /// On the handle's stream; `workspace` has workspace_bytes().
  void execute(cudnnHandle_t handle, std::span<const CudnnBinding> bindings, void* workspace) const;

 private:
  friend class CudnnGraph;
  struct Constant {
    std::int64_t id;
    float value;
  };

  std::vector<CudnnDescriptor> parts_;  //!< what the plan was made of, last the configuration and the plan
  std::vector<Constant> constants_;
  std::size_t workspace_bytes_ = 0;
};

class CudnnGraph {
 public:
  using Extents = std::array<std::int64_t, 4>;
  struct Tensor {
    std::int64_t id;
    Extents dims;
    cudnnBackendDescriptor_t descriptor;
  };

  static constexpr std::int64_t kFirstOwnId = 1000;  //!< those below are the caller's

  /// A tensor in memory, aligned to 16 bytes; CudnnBinding tells where.
  Tensor memory(std::int64_t id, const Extents& dims, const Extents& strides, cudnnDataType_t type);
  /// A tensor that is never stored; its elements lie packed as far as that matters.
  Tensor between(const Extents& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor between(const Extents& dims, const Extents& strides, cudnnDataType_t type);
  Tensor constant(float value);

  /// out = a . b over the last two dimensions; where b has fewer heads, a group of a's heads shares one.
  void multiply(const Tensor& a, const Tensor& b, const Tensor& out);
  /// out = mode(inputs), element by element; inputs of extent 1 are repeated.
  void apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, const Tensor& out,
             cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT);
  /// The same into a new f32 tensor like the first input.
  Tensor apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs);
  /// Each element's place along a dimension of `like`.
  Tensor index(const Tensor& like, std::int64_t dimension);
  /// Over the dimensions in which out has fewer elements.
  void reduce(cudnnReduceTensorOp_t operation, const Tensor& in, const Tensor& out);
  /// The same memory under other extents and strides.
  void reshape(const Tensor& in, const Tensor& out);

  /// The first plan in cuDNN's own order that it can build; a deterministic one has no engine that cuDNN
  /// calls nondeterministic, and one like another has its engine and knobs. Throws Error where there is none.
  /// The graph is used up.
  CudnnPlan plan(cudnnHandle_t handle, bool deterministic, const CudnnPlan* like = nullptr);

 private:
  Tensor tensor(CudnnDescriptor descriptor, std::int64_t id, const Extents& dims, const Extents& strides,
                cudnnDataType_t type);
  void add_pointwise(CudnnDescriptor function, std::initializer_list<Tensor> inputs, const Tensor& out);
  void add(CudnnDescriptor operation);

  std::vector<CudnnDescriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<CudnnPlan::Constant> constants_;
  std::int64_t next_id_ = kFirstOwnId;
};

}  // namespace tetrad::cuda
