// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes, uninitialised until written: of this program, aligned for SIMD, of a device, or borrowed.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

namespace tetrad {

/// Where memory that is not the program's own goes back to. Lives at least as long as the last buffer from
/// it.
class MemoryOwner {
 public:
  MemoryOwner() = default;
  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;
  virtual ~MemoryOwner() = default;
  virtual void release(std::byte* memory) noexcept = 0;
};

struct ReleaseMemory {
  std::shared_ptr<MemoryOwner> owner = nullptr;  //!< null: the program's own memory
  bool is_borrowed = false;

  void operator()(std::byte* memory) const {
    if (is_borrowed) return;
    if (owner)
      owner->release(memory);
    else
      std::free(memory);
  }
};

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(std::size_t bytes) : data_(allocate(bytes)), size_(bytes), capacity_(bytes) {}

  /// Takes memory that goes back to `owner`.
  Buffer(std::byte* data, std::size_t bytes, std::shared_ptr<MemoryOwner> owner)
      : data_(data, ReleaseMemory{std::move(owner)}), size_(bytes), capacity_(bytes) {}

  /// Memory that belongs to somebody else, who keeps it alive.
  static Buffer borrow(std::span<std::byte> memory) {
    Buffer buffer(memory.data(), memory.size(), nullptr);
    buffer.data_.get_deleter().is_borrowed = true;
    return buffer;
  }

  std::size_t size() const { return size_; }
  /// What is allocated: a buffer that was refitted may use less.
  std::size_t capacity() const { return capacity_; }
  /// Whether `bytes` fit into the memory that is there; if so, that is the size from now on.
  bool refit(std::size_t bytes) {
    if (bytes > capacity_ || data_ == nullptr) return false;
    size_ = bytes;
    return true;
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

  template <typename T>
  std::span<T> span() {
    return {as<T>(), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> span() const {
    return {as<T>(), size_ / sizeof(T)};
  }

 private:
  static std::byte* allocate(std::size_t bytes);

  std::unique_ptr<std::byte, ReleaseMemory> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace tetrad
