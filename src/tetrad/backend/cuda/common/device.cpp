// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/device.h"

#include <algorithm>
#include <unordered_map>

#include "tetrad/backend/cuda/common/device_code.h"
#include "tetrad/backend/cuda/common/error.h"
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

/// What is allocated, by address: the one list that frees and adds up.
class Ledger {
 public:
  void add(std::byte* memory, std::size_t bytes) {
    sizes_[memory] = bytes;
    now_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, now_);
  }
  void remove(std::byte* memory) {
    const auto found = sizes_.find(memory);
    now_ -= static_cast<std::int64_t>(found->second);
    sizes_.erase(found);
  }
  std::int64_t peak() const { return peak_; }
  std::int64_t restart_peak() { return peak_ = now_; }

 private:
  std::unordered_map<std::byte*, std::size_t> sizes_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

Ledger& ledger() {
  static auto* instance = new Ledger;  // buffers of static objects outlive every other static object
  return *instance;
}

void free_device(std::byte* memory) {
  if (memory == nullptr) return;
  ledger().remove(memory);
  cudaFree(memory);
}

}  // namespace

Device::Device() {
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess || count == 0)
    fail("no CUDA device can be used: {}; use run.backend: cpu",
         result == cudaSuccess ? "there is none" : cudaGetErrorString(result));
  check(cudaGetDeviceProperties(&properties_, 0));
  TETRAD_CHECK(properties_.major >= kOldestMajor,
               "{} has compute capability {}.{}; Tetrad needs {}.0 (Ampere) or later; use run.backend: cpu",
               properties_.name, properties_.major, properties_.minor, kOldestMajor);
  check(cudaSetDevice(0));
  if (const cudaError_t result = look_for_device_code();
      result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction)
    fail(
        "this program has CUDA code for architecture {}, and {} has compute capability {}.{}; configure with "
        "-DCMAKE_CUDA_ARCHITECTURES={} or use run.backend: cpu",
        TETRAD_CUDA_ARCHITECTURES, properties_.name, properties_.major, properties_.minor,
        architecture_of(properties_.major, properties_.minor));
  else
    check(result);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  check(cublasLtCreate(&blas_));
  constexpr float kConstants[] = {0.0f, 1.0f, 0.0f};
  constants_ = allocate(sizeof(kConstants));
  check(cudaMemcpy(constants_.data(), kConstants, sizeof(kConstants), cudaMemcpyHostToDevice));
}

Device::~Device() {
  cublasLtDestroy(blas_);
  cudaStreamDestroy(stream_);
}

Buffer Device::allocate(std::size_t bytes) const {
  if (bytes == 0) return {};
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    throw Error(fmt::format("the GPU has no room for {:.2f} GB more ({:.2f} of {:.2f} GB are free); use a "
                            "smaller train.microbatch, train.recompute: ffn or full, or a smaller model",
                            static_cast<double>(bytes) / 1e9, static_cast<double>(free_memory()) / 1e9,
                            static_cast<double>(properties_.totalGlobalMem) / 1e9),
                ExitCode::failure);
  }
  check(result);
  ledger().add(static_cast<std::byte*>(memory), bytes);
  return {static_cast<std::byte*>(memory), bytes, free_device};
}

std::int64_t Device::peak_memory() const { return ledger().peak(); }

std::int64_t Device::restart_peak() {
  synchronize();
  for (Buffer& buffer : scratch_) buffer = {};
  return ledger().restart_peak();
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

void Device::synchronize() const { check(cudaStreamSynchronize(stream_)); }

}  // namespace tetrad::cuda
