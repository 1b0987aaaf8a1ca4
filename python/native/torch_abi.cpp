// SPDX-License-Identifier: Apache-2.0
#include "torch_abi.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "contexts.h"

namespace tetrad::python {
namespace {

TorchAbi abi;

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error("this PyTorch has no " + std::string(name) + ": 2.11 or later is needed");
}

#define TETRAD_FIND(name) find(library, #name, abi.name)

void find_all(void* library, void* cuda_library) {
  TETRAD_FIND(aoti_torch_library_init_impl);
  TETRAD_FIND(torch_library_impl);
  TETRAD_FIND(aoti_torch_get_data_ptr);
  TETRAD_FIND(aoti_torch_get_dim);
  TETRAD_FIND(aoti_torch_get_sizes);
  TETRAD_FIND(aoti_torch_get_strides);
  TETRAD_FIND(aoti_torch_get_dtype);
  TETRAD_FIND(aoti_torch_get_device_type);
  TETRAD_FIND(aoti_torch_get_device_index);
  TETRAD_FIND(aoti_torch_empty_strided);
  TETRAD_FIND(aoti_torch_delete_tensor_object);
  TETRAD_FIND(torch_get_num_threads);
  TETRAD_FIND(aoti_torch_dtype_float32);
  TETRAD_FIND(aoti_torch_dtype_bfloat16);
  TETRAD_FIND(aoti_torch_dtype_uint8);
  TETRAD_FIND(aoti_torch_dtype_int64);
  TETRAD_FIND(aoti_torch_device_type_cpu);
  TETRAD_FIND(aoti_torch_device_type_cuda);
  if (cuda_library == nullptr) return;
  library = cuda_library;
  TETRAD_FIND(aoti_torch_get_current_cuda_stream);
}

#undef TETRAD_FIND

/// Of a library that the process has loaded, or null.
void* loaded(const std::string& path) { return dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW); }

}  // namespace

const TorchAbi& torch() { return abi; }

}  // namespace tetrad::python

/// `folder` is where PyTorch's libraries are. Returns NULL, or what is wrong.
extern "C" TETRAD_API const char* tetrad_python_load_torch(const char* folder) {
  using namespace tetrad::python;  // NOLINT(google-build-using-namespace)
  static std::string message;
  try {
    void* const library = loaded(std::string(folder) + "/libtorch_cpu.so");
    if (library == nullptr)
      throw std::runtime_error("libtorch_cpu.so is not loaded from " + std::string(folder));
    find_all(library, loaded(std::string(folder) + "/libtorch_cuda.so"));
    register_torch_kernels();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}
