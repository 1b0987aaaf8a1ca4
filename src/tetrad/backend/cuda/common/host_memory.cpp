// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/common/host_memory.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad::cuda {
namespace {

constexpr std::size_t kHugePage = std::size_t{1} << 21;
/// Pages are made when they are first touched, by a thread each time: most of the time of pinning.
constexpr std::size_t kTouchedAtOnce = std::size_t{1} << 26;

/// One mapping, and how much of it is pinned.
class PinnedMemory final : public MemoryOwner {
 public:
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    if (failpoint_fails("host.allocate")) refuse();
    // Pieces begin at multiples of their size, so that an address says where its piece ends: more is mapped
    // than needed, and what lies before and behind goes back.
    const std::size_t mapped = bytes_ + kPinnedPiece;
    void* const memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) refuse();
    auto* const first = static_cast<std::byte*>(memory);
    const std::size_t before = until_next_piece(first) % kPinnedPiece;
    memory_ = first + before;
    if (before > 0) ::munmap(first, before);
    ::munmap(memory_ + bytes_, mapped - before - bytes_);
    ::madvise(memory_, bytes_, MADV_HUGEPAGE);  // where there are none, small ones do
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() override {
    for (std::size_t first = 0; first < pinned_; first += kPinnedPiece) cudaHostUnregister(memory_ + first);
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }

  void pin(Threads& threads) {
    const auto pieces = static_cast<std::int64_t>((bytes_ + kTouchedAtOnce - 1) / kTouchedAtOnce);
    threads.parallel_for(pieces, [&](std::int64_t piece) {
      const std::size_t first = static_cast<std::size_t>(piece) * kTouchedAtOnce;
      std::memset(memory_ + first, 0, std::min(kTouchedAtOnce, bytes_ - first));
    });
    for (std::size_t first = 0; first < bytes_; first += kPinnedPiece) {
      const std::size_t size = std::min(kPinnedPiece, bytes_ - first);
      if (const cudaError_t result = cudaHostRegister(memory_ + first, size, cudaHostRegisterMapped);
          result != cudaSuccess) {
        cudaGetLastError();  // reported here: the next launch shall not find it again
        fail(
            "cannot pin {:.2f} GB of the machine's memory for the GPU: {}; check the limits of the container "
            "or control group, "
            "or use train.memory=device",
            static_cast<double>(bytes_) / 1e9, cudaGetErrorString(result));
      }
      pinned_ = first + size;
      void* address = nullptr;
      if (cudaHostGetDevicePointer(&address, memory_ + first, 0) != cudaSuccess || address != memory_ + first)
        fail("this GPU does not see the machine's memory where the program does; use train.memory=device");
    }
  }

  std::byte* memory() const { return memory_; }

  /// The one buffer is gone; its deleter holds the last reference to this.
  void release(std::byte* /*memory*/) noexcept override {}

 private:
  [[noreturn]] void refuse() const {
    fail_errno(fmt::format("the machine has no room for {:.2f} GB that a GPU can reach",
                           static_cast<double>(bytes_) / 1e9));
  }

  std::size_t bytes_;
  std::size_t pinned_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace

Buffer allocate_pinned(Threads& threads, std::size_t bytes) {
  if (bytes == 0) return {};
  const auto owner = std::make_shared<PinnedMemory>((bytes + kHugePage - 1) / kHugePage * kHugePage);
  owner->pin(threads);
  return Buffer(owner->memory(), bytes, owner);
}

}  // namespace tetrad::cuda
