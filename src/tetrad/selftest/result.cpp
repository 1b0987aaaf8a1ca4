// SPDX-License-Identifier: Apache-2.0
#include "tetrad/selftest/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tetrad/numerics/bf16.h"

namespace tetrad::selftest {
namespace {

bool is_number(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64; }

std::size_t element_bytes(const Result& result) {
  return is_number(result.dtype) ? static_cast<std::size_t>(bits_of(result.dtype)) / 8 : 1;
}

template <typename T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double number_at(const Result& result, std::size_t element) {
  const std::byte* bytes = result.bytes.data() + element * element_bytes(result);
  if (result.dtype == DType::f64) return read<double>(bytes);
  return result.dtype == DType::f32 ? double{read<float>(bytes)} : double{read<Bf16>(bytes).to_f32()};
}

/// Digits that tell every value from its neighbours.
std::string text_at(const Result& result, std::size_t element) {
  if (is_number(result.dtype)) return fmt::format("{:.9g}", number_at(result, element));
  return fmt::format("{:#04x}", std::to_integer<unsigned>(result.bytes[element]));
}

double largest_magnitude(const Result& result, std::size_t count) {
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (const double value = std::abs(number_at(result, i)); std::isfinite(value))
      largest = std::max(largest, value);
  return largest;
}

std::optional<Difference> first_difference(const Result& expected, const Result& found, bool same_bytes) {
  if (!same_bytes && expected.tolerance == kRepeatable) return std::nullopt;
  if (expected.bytes == found.bytes) return std::nullopt;
  if (expected.bytes.size() != found.bytes.size())
    return Difference{expected.name, 0, 0, fmt::format("{} bytes", expected.bytes.size()),
                      fmt::format("{} bytes", found.bytes.size())};
  const std::size_t size = element_bytes(expected);
  const std::size_t count = expected.bytes.size() / size;
  const bool exact = same_bytes || expected.tolerance == kSameBytes || !is_number(expected.dtype);
  const double allowed = exact ? 0 : expected.tolerance * largest_magnitude(expected, count);
  const double step = expected.dtype == DType::bf16 ? 0x1p-7 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(expected.bytes.data() + i * size, found.bytes.data() + i * size, size) == 0) continue;
    if (!exact) {
      const double wanted = number_at(expected, i);
      // Not a number is never near one.
      if (std::abs(number_at(found, i) - wanted) <= allowed + step * std::abs(wanted)) continue;
    }
    const auto place = static_cast<std::int64_t>(i);
    const std::int64_t cols = std::max<std::int64_t>(1, expected.cols);
    return Difference{expected.name, place / cols, place % cols, text_at(expected, i), text_at(found, i)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Difference> first_difference(const std::vector<Result>& expected,
                                           const std::vector<Result>& found, bool same_bytes) {
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i)
    if (auto difference = first_difference(expected[i], found[i], same_bytes)) return difference;
  if (expected.size() == found.size()) return std::nullopt;
  return Difference{"results", 0, 0, std::to_string(expected.size()), std::to_string(found.size())};
}

}  // namespace tetrad::selftest
