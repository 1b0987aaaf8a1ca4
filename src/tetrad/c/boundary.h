// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every function of tetrad.h has to do at the boundary: exceptions become statuses, the floating-point
// environment is restored, structs of other versions are read, and C's types become ours.

#include <algorithm>
#include <cfenv>
#include <cstddef>
#include <cstring>
#include <memory>

#include "tetrad/c/tetrad.h"
#include "tetrad/core/error.h"
#include "tetrad/core/matrix.h"
#include "tetrad/ops/linear.h"

/// A backend, and memory of linear layers that need not outlive a call.
struct tetrad_context {
  std::unique_ptr<tetrad::Backend> backend;
  bool on_device = false;  //!< the amax of a quantized tensor lies in the backend's memory
  tetrad::LinearWorkspace workspace;
  tetrad::WeightForm weight;
  tetrad::WeightForm dgrad_weight;
  tetrad::QuantizedTensor input;
  tetrad::Buffer mean;
};

struct tetrad_precision {
  tetrad::LinearPrecision precision;
};

namespace tetrad::c {

/// The default floating-point environment while it lives: frameworks run threads that flush subnormals.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;
  ~DefaultEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_ = {};
};

/// Keeps the message of the exception that is being handled, and returns its status.
tetrad_status status_of_exception() noexcept;

template <typename Body>
tetrad_status guarded(const Body& body) noexcept {
  const DefaultEnvironment environment;
  try {
    body();
    return TETRAD_OK;
  } catch (...) {
    return status_of_exception();
  }
}

template <typename T>
T& required(T* pointer, const char* name) {
  TETRAD_CHECK(pointer != nullptr, "{} is NULL", name);
  return *pointer;
}

/// A struct as this version knows it. An older one is shorter: what it lacks is zero. Of a newer one, what
/// we do not know must be zero.
template <typename Struct>
Struct read_struct(const Struct* given, const char* name) {
  const std::size_t size = required(given, name).struct_size;
  TETRAD_CHECK(size > sizeof(size) && size < (1u << 16), "{}: struct_size is {}: set it to sizeof", name,
               size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(Struct); i < size; ++i)
    TETRAD_CHECK(bytes[i] == 0, "{}: this version of the library ({}) does not know all of it", name,
                 tetrad_version());
  Struct known = {};
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  return known;
}

/// Fills as much of a caller's struct as there is.
template <typename Struct>
void write_struct(Struct values, Struct& out, const char* name) {
  const std::size_t size = out.struct_size;
  TETRAD_CHECK(size > sizeof(size) && size < (1u << 16), "{}: struct_size is {}: set it to sizeof", name,
               size);
  values.struct_size = size;
  std::memcpy(&out, &values, std::min(size, sizeof(Struct)));
}

/// Throws Error for a type, a shape or strides that make no sense.
MatrixView input_matrix(const tetrad_matrix& matrix, const char* name);
MutableMatrixView output_matrix(const tetrad_matrix& matrix, const char* name);

/// The key of a call, which the caller may have put into the context's memory: by value where the host can
/// read it, and where a device reads it otherwise.
RandomKey key_by_value(const tetrad_context& context, const tetrad_random_key* in_memory,
                       const RandomKey& given);
const RandomKey* key_on_device(const tetrad_context& context, const tetrad_random_key* in_memory);

QuantSpec quant_spec(const tetrad_quantizer* quantizer, const char* name);

/// A caller's memory as a tensor [rows, cols], as a product reads it.
QuantizedTensor borrow_tensor(const tetrad_context& context, const tetrad_quantized& memory,
                              const QuantSpec& spec, std::int64_t rows, std::int64_t cols);

/// `bytes` at `data` that are the caller's.
inline Buffer borrow(void* data, std::size_t bytes) {
  return Buffer::borrow({static_cast<std::byte*>(data), bytes});
}

}  // namespace tetrad::c
