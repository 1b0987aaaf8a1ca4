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

/// The largest extent that an empty tensor may have: nobody's tensor has more rows of nothing, and whoever
/// walks over them would not come back.
inline constexpr std::uint64_t kMaxExtentOfEmpty = std::uint64_t{1} << 24;

/// Product of the extents. A shape whose zero hides an overflow, or an extent beyond kMaxExtentOfEmpty, is a
/// lie, and reported like an overflow.
inline std::optional<std::uint64_t> checked_product(std::span<const std::uint64_t> extents) {
  std::optional<std::uint64_t> product = 1;
  bool has_zero = false;
  std::uint64_t largest = 0;
  for (const std::uint64_t extent : extents) {
    has_zero |= extent == 0;
    largest = extent > largest ? extent : largest;
    product = checked_mul(*product, extent == 0 ? 1 : extent);
    if (!product) return std::nullopt;
  }
  if (!has_zero) return product;
  return largest <= kMaxExtentOfEmpty ? std::optional<std::uint64_t>(0) : std::nullopt;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tetrad
