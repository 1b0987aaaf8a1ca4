// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/device.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>

#include "tetrad/backend/cuda/common/blas_error.h"
#include "tetrad/backend/cuda/common/current_device.h"
#include "tetrad/backend/cuda/common/device_code.h"
#include "tetrad/core/error.h"

namespace tetrad::cuda {
namespace {

constexpr int kOldestMajor = 8;  // Ampere: the first with BF16 tensor cores

/// What to compile for: from Hopper on the architecture itself, which has instructions that its successors
/// lack.
std::string architecture_of(int major, int minor) {
  constexpr int kHopper = 9;
  return fmt::format("{}{}{}", major, minor, major >= kHopper ? "a" : "");
}

}  // namespace

/// What a context has allocated, by address: the one list that frees and adds up. Buffers hold it, so that it
/// may outlive the context; they may be freed by any thread.
class MemoryLedger : public MemoryOwner {
 public:
  explicit MemoryLedger(int device) : device_(device) {}

  void add(std::byte* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    now_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, now_);
  }
  void release(std::byte* memory) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      const auto found = sizes_.find(memory);
      now_ -= static_cast<std::int64_t>(found->second);
      sizes_.erase(found);
    }
    const CurrentDevice current(device_, std::nothrow);
    cudaFree(memory);
  }
  std::int64_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  std::int64_t restart_peak() {
    const std::lock_guard lock(mutex_);
    return peak_ = now_;
  }

 private:
  const int device_;
  mutable std::mutex mutex_;
  std::unordered_map<std::byte*, std::size_t> sizes_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

Device::Device(const DeviceOptions& options) : options_(options) {
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess || count == 0)
    fail("no CUDA device can be used: {}; use run.backend: cpu",
         result == cudaSuccess ? "there is none" : cudaGetErrorString(result));
  TETRAD_CHECK(options.index >= 0 && options.index < count, "there is no CUDA device {}: this machine has {}",
               options.index, count);
  check(cudaGetDeviceProperties(&properties_, options.index));
  TETRAD_CHECK(properties_.major >= kOldestMajor,
               "{} has compute capability {}.{}; Tetrad needs {}.0 (Ampere) or later; use run.backend: cpu",
               properties_.name, properties_.major, properties_.minor, kOldestMajor);
  const CurrentDevice current(options.index);
  if (const cudaError_t result = look_for_device_code();
      result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction)
    fail(
        "this program has CUDA code for architecture {}, and {} has compute capability {}.{}; configure with "
        "-DCMAKE_CUDA_ARCHITECTURES={} or use run.backend: cpu",
        TETRAD_CUDA_ARCHITECTURES, properties_.name, properties_.major, properties_.minor,
        architecture_of(properties_.major, properties_.minor));
  else  // NOLINT(readability-else-after-return): result is of the `if`
    check(result);
  if (options_.stream == nullptr) {
    check(cudaStreamCreateWithFlags(&options_.stream, cudaStreamNonBlocking));
    own_stream_.reset(options_.stream);
  }
  cublasLtHandle_t blas = nullptr;
  check(cublasLtCreate(&blas));
  blas_.reset(blas);
  ledger_ = std::make_shared<MemoryLedger>(options.index);
  // On the context's own stream: the default one would wait for, and be waited for by, streams of others.
  static constexpr float kConstants[] = {0.0f, 1.0f, 0.0f};
  constants_ = allocate(sizeof(kConstants));
  check(cudaMemcpyAsync(constants_.data(), kConstants, sizeof(kConstants), cudaMemcpyHostToDevice, stream()));
  synchronize();
}

void Device::DestroyBlas::operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }

Device::~Device() {
  const CurrentDevice current(options_.index, std::nothrow);
  kept_.clear();
  scratch_ = {};
  constants_ = {};
  blas_.reset();
  own_stream_.reset();
}

Buffer Device::allocate(std::size_t bytes) const {
  if (bytes == 0) return {};
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here: the next launch shall not find it again
    throw Error(
        fmt::format(
            "the GPU has no room for {:.2f} GB more ({:.2f} of {:.2f} GB are free); use a "
            "smaller train.microbatch, train.memory: auto and train.recompute: auto, or a smaller model",
            static_cast<double>(bytes) / 1e9, static_cast<double>(free_memory()) / 1e9,
            static_cast<double>(properties_.totalGlobalMem) / 1e9),
        ExitCode::failure);
  }
  check(result);
  ledger_->add(static_cast<std::byte*>(memory), bytes);
  return {static_cast<std::byte*>(memory), bytes, ledger_};
}

std::int64_t Device::peak_memory() const { return ledger_->peak(); }

std::int64_t Device::restart_peak() {
  synchronize();
  for (Buffer& buffer : scratch_) buffer = {};
  return ledger_->restart_peak();
}

std::int64_t Device::free_memory() const {
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total));
  for (const Buffer& buffer : scratch_) available += buffer.size();
  return static_cast<std::int64_t>(available);
}

std::string Device::bus_id() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties_.pciDomainID, properties_.pciBusID,
                     properties_.pciDeviceID);
}

std::byte* Device::scratch(Slot slot, std::size_t bytes) {
  Buffer& buffer = scratch_[slot];
  if (buffer.size() < bytes) {
    buffer = {};  // first: both need not fit
    buffer = allocate(bytes);
  }
  return buffer.data();
}

void Device::synchronize() const { check(cudaStreamSynchronize(stream())); }

}  // namespace tetrad::cuda
