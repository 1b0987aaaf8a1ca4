// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes, uninitialised until written: of this program, aligned for SIMD, of a device, or borrowed.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace tetrad {

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(std::size_t bytes) : data_(allocate(bytes), free_host), size_(bytes), capacity_(bytes) {}

  /// Takes memory that `release` gives back.
  using Release = void (*)(std::byte*);
  Buffer(std::byte* data, std::size_t bytes, Release release)
      : data_(data, release), size_(bytes), capacity_(bytes) {}

  /// Memory that belongs to somebody else, who keeps it alive.
  static Buffer borrow(std::span<std::byte> memory) {
    return {memory.data(), memory.size(), [](std::byte*) {}};
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
  static void free_host(std::byte* p) { std::free(p); }

  std::unique_ptr<std::byte, Release> data_{nullptr, free_host};
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace tetrad
