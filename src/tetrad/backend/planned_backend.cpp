// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/planned_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>

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

  /// Addresses are given out once.
  std::byte* take(std::size_t bytes) {
    TETRAD_CHECK(bytes <= kBytes - given_out_, "a plan of more than {} bytes of memory", kBytes);
    std::byte* const memory = static_cast<std::byte*>(first_) + given_out_;
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    sizes_[memory] = size;
    given_out_ += std::max(size, kAlignment);
    in_use_ += size;
    most_ = std::max(most_, in_use_);
    return memory;
  }
  std::size_t in_use() const { return in_use_; }
  std::size_t most() const { return most_; }
  void release(std::byte* memory) noexcept override {
    const auto found = sizes_.find(memory);
    in_use_ -= found->second;
    sizes_.erase(found);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 43;  // what a 405B model takes, and as much again
  static constexpr std::size_t kAlignment = 256;               // as devices align

  void* first_;
  std::size_t given_out_ = 0;
  std::size_t in_use_ = 0;
  std::size_t most_ = 0;
  std::map<std::byte*, std::size_t> sizes_;  //!< of what is in use
};

PlannedBackend::PlannedBackend() : addresses_(std::make_shared<Addresses>()) {}

std::int64_t PlannedBackend::peak_memory() const { return static_cast<std::int64_t>(addresses_->most()); }

std::int64_t PlannedBackend::memory_in_use() const { return static_cast<std::int64_t>(addresses_->in_use()); }

Buffer PlannedBackend::allocate(std::size_t bytes) {
  return Buffer(addresses_->take(bytes), bytes, addresses_);
}

std::span<const std::byte> PlannedBackend::readable(std::span<const std::byte> memory, Buffer& copy) {
  copy = Buffer(memory.size());
  std::ranges::fill(copy.span<std::byte>(), std::byte{0});
  return copy.span<const std::byte>();
}

QuantStats PlannedBackend::quantize(const MatrixView& x, const QuantSpec& spec,
                                    const QuantizeOptions& options, QuantizedTensor& quantized) {
  const std::int64_t rows = spec.axis == 0 ? x.cols : x.rows;
  const std::int64_t cols = spec.axis == 0 ? x.rows : x.cols;
  const PackedSize size = packed_size(spec, rows, cols);
  const auto fit = [&](Buffer& buffer, std::int64_t bytes) {
    if (!buffer.refit(static_cast<std::size_t>(bytes))) buffer = allocate(static_cast<std::size_t>(bytes));
  };
  quantized.spec = spec;
  quantized.rows = rows;
  quantized.cols = cols;
  quantized.order = options.order;
  quantized.form = Form::packed;
  fit(quantized.codes, size.codes);
  fit(quantized.scales, size.scales);
  fit(quantized.device_amax, sizeof(float));
  return {};
}

std::unique_ptr<MemoryReader> PlannedBackend::make_reader() {
  fail("a device that is only planned has no values");
}

}  // namespace tetrad
