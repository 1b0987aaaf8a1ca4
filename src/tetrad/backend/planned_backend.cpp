// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/planned_backend.h"

#include <sys/mman.h>

#include "tetrad/core/error.h"

namespace tetrad {

/// A range of addresses without memory.
class PlannedBackend::Addresses final : public MemoryOwner {
 public:
  Addresses()
      : first_(::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (first_ == MAP_FAILED) fail_errno("addresses for a plan");
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() override { ::munmap(first_, kBytes); }

  std::byte* take(std::size_t bytes) {
    TETRAD_CHECK(bytes <= kBytes - used_, "a plan of more than {} bytes of memory", kBytes);
    std::byte* const memory = static_cast<std::byte*>(first_) + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return memory;
  }
  std::size_t used() const { return used_; }
  void release(std::byte* /*memory*/) noexcept override {}

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 43;  // what a 405B model takes, and as much again
  static constexpr std::size_t kAlignment = 256;               // as devices align

  void* first_;
  std::size_t used_ = 0;
};

PlannedBackend::PlannedBackend() : addresses_(std::make_shared<Addresses>()) {}

std::int64_t PlannedBackend::peak_memory() const { return static_cast<std::int64_t>(addresses_->used()); }

Buffer PlannedBackend::allocate(std::size_t bytes) {
  return Buffer(addresses_->take(bytes), bytes, addresses_);
}

std::span<const std::byte> PlannedBackend::readable(std::span<const std::byte> /*memory*/, Buffer& /*copy*/) {
  fail("a device that is only planned has no values");
}

std::unique_ptr<MemoryReader> PlannedBackend::make_reader() {
  fail("a device that is only planned has no values");
}

}  // namespace tetrad
