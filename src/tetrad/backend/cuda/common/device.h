// SPDX-License-Identifier: Apache-2.0
#pragma once
// One context on one GPU: a stream, memory that operations use for a moment, and what they keep from call to
// call. Several contexts, on one GPU or on several, share nothing. A context is used by one thread at a time,
// which has made its GPU the current one (current_device.h).

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <typeindex>

#include "tetrad/core/buffer.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/ops/attention.h"

struct cublasLtContext;  // cublasLt.h is large, and only gemm/ calls it

namespace tetrad::cuda {

struct DeviceOptions {
  int index = 0;
  cudaStream_t stream = nullptr;  //!< null: a stream of its own
  bool tune = true;               //!< times cuBLASLt's kernels; false: takes the one that it names first
  bool native = true;             //!< false: operands in narrow formats are always expanded
};

class MemoryLedger;

class Device {
 public:
  /// Throws Error that says why where there is no device that can be used.
  explicit Device(const DeviceOptions& options = {});
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  int index() const { return options_.index; }
  bool tunes() const { return options_.tune; }
  cudaStream_t stream() const { return options_.stream; }
  cublasLtContext* blas() const { return blas_.get(); }
  const cudaDeviceProp& properties() const { return properties_; }
  std::string bus_id() const;
  /// The compute capability, 90 for 9.0, whose matrix units for narrow formats are used (gemm/native.h); 0:
  /// none are.
  int native_capability() const { return options_.native ? 10 * properties_.major + properties_.minor : 0; }
  int multiprocessors() const { return properties_.multiProcessorCount; }

  /// Buffers may outlive the context.
  Buffer allocate(std::size_t bytes) const;
  /// The most that was allocated at one time.
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

  /// What an operation keeps from call to call, plans and handles of libraries: one T(const Device&), made
  /// when it is first asked for.
  template <typename T>
  T& kept() const {
    std::shared_ptr<void>& slot = kept_[std::type_index(typeid(T))];
    if (slot == nullptr) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

  /// Constants on the device.
  const float* zero() const { return constants_.as<float>(); }
  const float* one() const { return constants_.as<float>() + 1; }

  /// A word that is zero between operations: one that raises it brings it back to zero.
  std::uint32_t* flag() { return constants_.as<std::uint32_t>() + 2; }

  void synchronize() const;

  AttentionEngine attention_engine = AttentionEngine::best;  //!< something else only to compare
  HostMoments host_moments = HostMoments::staged;            //!< the same

 private:
  struct DestroyStream {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  struct DestroyBlas {
    void operator()(cublasLtContext* handle) const;
  };

  DeviceOptions options_;  //!< with the stream that is used
  cudaDeviceProp properties_ = {};
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream> own_stream_;
  std::unique_ptr<cublasLtContext, DestroyBlas> blas_;
  std::shared_ptr<MemoryLedger> ledger_;
  Buffer constants_;  //!< and the flag
  std::array<Buffer, slots> scratch_;
  mutable std::map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace tetrad::cuda
