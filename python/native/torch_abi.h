// SPDX-License-Identifier: Apache-2.0
#pragma once
// What we call of PyTorch: functions of its stable C interface, which every version from 2.11 on has. They
// are declared here and looked up in the PyTorch that the process has loaded, so that neither building nor
// the wheel needs one.

#include <cstdint>
#include <stdexcept>

namespace tetrad::python {

struct TorchTensor;  // opaque, as all that PyTorch hands out
struct TorchLibrary;
using TorchValue = std::uint64_t;  //!< an argument or a result: a handle, an integer or a truth value
using TorchKernel = void (*)(TorchValue* stack, std::uint64_t arguments, std::uint64_t results);
using TorchError = std::int32_t;

struct TorchAbi {
  TorchError (*aoti_torch_library_init_impl)(const char* name, const char* key, const char* file,
                                             std::uint32_t line, TorchLibrary** out) = nullptr;
  TorchError (*torch_library_impl)(TorchLibrary* library, const char* name, TorchKernel kernel,
                                   std::uint64_t version) = nullptr;
  TorchError (*aoti_torch_get_data_ptr)(TorchTensor* tensor, void** out) = nullptr;
  TorchError (*aoti_torch_get_dim)(TorchTensor* tensor, std::int64_t* out) = nullptr;
  TorchError (*aoti_torch_get_sizes)(TorchTensor* tensor, std::int64_t** out) = nullptr;
  TorchError (*aoti_torch_get_strides)(TorchTensor* tensor, std::int64_t** out) = nullptr;
  TorchError (*aoti_torch_get_dtype)(TorchTensor* tensor, std::int32_t* out) = nullptr;
  TorchError (*aoti_torch_get_device_type)(TorchTensor* tensor, std::int32_t* out) = nullptr;
  TorchError (*aoti_torch_get_device_index)(TorchTensor* tensor, std::int32_t* out) = nullptr;
  TorchError (*aoti_torch_empty_strided)(std::int64_t dim, const std::int64_t* sizes,
                                         const std::int64_t* strides, std::int32_t dtype,
                                         std::int32_t device_type, std::int32_t device_index,
                                         TorchTensor** out) = nullptr;
  TorchError (*aoti_torch_delete_tensor_object)(TorchTensor* tensor) = nullptr;
  TorchError (*torch_get_num_threads)(std::uint32_t* out) = nullptr;
  std::int32_t (*aoti_torch_dtype_float32)() = nullptr;
  std::int32_t (*aoti_torch_dtype_bfloat16)() = nullptr;
  std::int32_t (*aoti_torch_dtype_uint8)() = nullptr;
  std::int32_t (*aoti_torch_dtype_int64)() = nullptr;
  std::int32_t (*aoti_torch_device_type_cpu)() = nullptr;
  std::int32_t (*aoti_torch_device_type_cuda)() = nullptr;
  /// Only where PyTorch was built with CUDA; else null.
  TorchError (*aoti_torch_get_current_cuda_stream)(std::int32_t device, void** out) = nullptr;
};

const TorchAbi& torch();

inline void check_torch(TorchError error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string("tetrad: PyTorch failed: ") + what);
}

/// A tensor that we own.
class OwnedTensor {
 public:
  explicit OwnedTensor(TorchTensor* tensor) : tensor_(tensor) {}
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;
  ~OwnedTensor() {
    if (tensor_ != nullptr) torch().aoti_torch_delete_tensor_object(tensor_);
  }
  TorchTensor* get() const { return tensor_; }
  /// For the stack of results, which owns it from then on.
  TorchValue release() {
    auto* const tensor = tensor_;
    tensor_ = nullptr;
    return reinterpret_cast<TorchValue>(tensor);
  }

 private:
  TorchTensor* tensor_;
};

/// Puts the operations of torch_ops.cpp behind their names.
void register_torch_kernels();

}  // namespace tetrad::python
