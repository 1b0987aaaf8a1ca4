#pragma once
// Owned bytes, aligned for SIMD, uninitialised until written.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace tetrad {

class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(std::size_t bytes) : data_(allocate(bytes)), size_(bytes) {}

  std::size_t size() const { return size_; }
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
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  static std::byte* allocate(std::size_t bytes);

  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace tetrad
