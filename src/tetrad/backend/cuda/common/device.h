// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one GPU that this process uses: its stream, and memory that operations use for a moment.

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tetrad/backend/cuda/gemm/native.h"
#include "tetrad/core/buffer.h"
#include "tetrad/ops/attention.h"

namespace tetrad::cuda {

class Device {
 public:
  /// Throws Error that says why where there is no device that can be used.
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t blas() const { return blas_; }
  const cudaDeviceProp& properties() const { return properties_; }
  std::string bus_id() const;
  int multiprocessors() const { return properties_.multiProcessorCount; }
  /// Whether the matrix units take operands of a format as they are.
  bool is_native(Format format) const { return cuda::is_native(format, properties_.major); }

  Buffer allocate(std::size_t bytes) const;
  /// Of everything that was allocated at one time.
  std::int64_t peak_memory() const;
  /// Frees the scratch memory and begins a new peak; returns what is still allocated.
  std::int64_t restart_peak();
  std::int64_t free_memory() const;

  /// Memory for one operation, one buffer per purpose; it grows to what was ever asked for. What it holds is
  /// valid until the same slot is asked for again: operations run one after another on one stream.
  enum Slot : std::uint8_t {
    blas_workspace,
    partial_sums,
    operand_a,
    operand_b,
    expanded,
    product,
    alpha,
    attention,
    scan,
    logits,
    tables,
    slots,
  };
  std::byte* scratch(Slot slot, std::size_t bytes);
  template <typename T>
  T* scratch(Slot slot, std::int64_t count) {
    return reinterpret_cast<T*>(scratch(slot, static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// Constants on the device.
  const float* zero() const { return constants_.as<float>(); }
  const float* one() const { return constants_.as<float>() + 1; }

  /// A word that is zero between operations: one that raises it brings it back to zero.
  std::uint32_t* flag() { return constants_.as<std::uint32_t>() + 2; }

  void synchronize() const;

  AttentionEngine attention_engine = AttentionEngine::best;  //!< something else only to compare

 private:
  cudaDeviceProp properties_ = {};
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  Buffer constants_;  //!< and the flag
  std::array<Buffer, slots> scratch_;
};

}  // namespace tetrad::cuda
