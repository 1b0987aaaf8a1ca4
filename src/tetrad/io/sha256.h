// SPDX-License-Identifier: Apache-2.0
#pragma once
// SHA-256 (FIPS 180-4), incremental. Uses the processor's SHA instructions where it has them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tetrad {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);

  std::uint64_t size() const { return size_; }  //!< Bytes given so far.

  /// 64 lower-case hexadecimal digits of everything given so far. Does not end the computation.
  std::string hex() const;

 private:
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};  //!< The first size_ % 64 are taken.
  std::uint64_t size_ = 0;
};

/// hex() of these bytes alone.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace tetrad
