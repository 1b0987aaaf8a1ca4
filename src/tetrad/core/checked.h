// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arithmetic on sizes that come from outside: overflow is an answer, never a wrapped number.

#include <cstdint>
#include <optional>
#include <span>

namespace tetrad {

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Product of the extents; overflow is reported even when another extent is zero, because such a shape is a
/// lie.
inline std::optional<std::uint64_t> checked_product(std::span<const std::uint64_t> extents) {
  std::optional<std::uint64_t> product = 1;
  bool has_zero = false;
  for (const std::uint64_t extent : extents) {
    has_zero |= extent == 0;
    product = checked_mul(*product, extent == 0 ? 1 : extent);
    if (!product) return std::nullopt;
  }
  return has_zero ? 0 : product;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tetrad
