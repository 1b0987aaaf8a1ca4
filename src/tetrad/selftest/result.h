// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an operation wrote, in the program's memory, and how it compares with what it should have.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/core/dtype.h"

namespace tetrad::selftest {

// How far a result may be from the expected one, as a part of the largest expected magnitude; BF16 may be one
// step away besides.
inline constexpr double kSameBytes = 0;  //!< promised byte for byte (docs/numerics.md)
/// Nothing is expected but that the same backend gives the same bytes again.
inline constexpr double kRepeatable = std::numeric_limits<double>::infinity();

struct Result {
  std::string name;         //!< as the operation calls it: "dx"
  DType dtype = DType::u8;  //!< f32, bf16 and f64 are numbers, all others are bytes
  std::int64_t cols = 0;    //!< elements of a row, with what surrounds it
  double tolerance = kSameBytes;
  std::vector<std::byte> bytes = {};  //!< what surrounds the result too: nobody may write there
};

/// The first element that is not as expected.
struct Difference {
  std::string result;
  std::int64_t row = 0;
  std::int64_t col = 0;
  std::string expected;
  std::string found;
};

/// Compares with `expected.tolerance`, or byte for byte.
std::optional<Difference> first_difference(const std::vector<Result>& expected,
                                           const std::vector<Result>& found, bool same_bytes);

}  // namespace tetrad::selftest
