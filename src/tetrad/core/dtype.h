// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types, under the names that safetensors gives them.

#include <cstdint>
#include <optional>
#include <string_view>

namespace tetrad {

enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f4,
  f6_e2m3,
  f6_e3m2,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f16,
  bf16,
  f32,
  f64,
  c64,
};

/// Bits, not bytes: F4 and F6 are narrower than a byte.
int bits_of(DType dtype);

std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace tetrad
