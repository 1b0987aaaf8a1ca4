// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bits of an f32, for tests that go through all of them.

#include <bit>
#include <cstdint>

namespace tetrad::testing {

inline constexpr std::uint32_t kSignF32 = 0x80000000u;
inline constexpr std::uint32_t kInfinityF32 = 0x7F800000u;

constexpr float f32_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace tetrad::testing
