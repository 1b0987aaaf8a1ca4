// SPDX-License-Identifier: Apache-2.0
// The layout of block scales that Blackwell's matrix library reads.

#include "tetrad/numerics/blackwell_layout.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tetrad::blackwell {
namespace {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// By hand from ((r/128)*ceil(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4.
static_assert(scale_offset(0, 0, 4) == 0);
static_assert(scale_offset(0, 3, 4) == 3);
static_assert(scale_offset(1, 0, 4) == 16);
static_assert(scale_offset(31, 0, 4) == 496);
static_assert(scale_offset(32, 0, 4) == 4, "the second 32 rows lie between the first");
static_assert(scale_offset(33, 2, 4) == 16 + 4 + 2);
static_assert(scale_offset(127, 3, 4) == 511, "the last byte of a tile");
static_assert(scale_offset(128, 0, 4) == 512);
static_assert(scale_offset(0, 4, 5) == 512, "the next tile along the columns comes first");
static_assert(scale_offset(128, 0, 5) == 1024, "5 columns take two tiles");
static_assert(scale_offset(200, 6, 7) == (1 * 2 + 1) * 512 + 8 * 16 + 2 * 4 + 2);
static_assert(scale_offset(1'000'000, 999, 1000) == (7812LL * 250 + 249) * 512 + 0 * 16 + 2 * 4 + 3);
static_assert(scale_offset(1LL << 24, 0, 1 << 14) == (131072LL * 4096) * 512, "beyond 32 bits");

static_assert(scale_bytes(1, 1) == 512 && scale_bytes(128, 4) == 512);
static_assert(scale_bytes(129, 4) == 1024 && scale_bytes(128, 5) == 1024 && scale_bytes(129, 5) == 2048);
static_assert(scale_bytes(0, 4) == 0 && scale_bytes(4, 0) == 0);
static_assert(scale_bytes(1LL << 24, 1 << 14) == 1LL << 38, "beyond 32 bits");

using Shape = std::pair<std::int64_t, std::int64_t>;

class BlackwellLayout : public ::testing::TestWithParam<Shape> {};

TEST_P(BlackwellLayout, IsABijectionThatLeavesThePaddingAlone) {
  const auto [rows, columns] = GetParam();
  const std::int64_t padded_rows = round_up(rows, 128);
  const std::int64_t padded_columns = round_up(columns, 4);
  ASSERT_EQ(scale_bytes(rows, columns), padded_rows * padded_columns);
  // The padded matrix must fill the bytes once each; then the padding's are not those of a scale.
  std::vector<int> uses(static_cast<std::size_t>(scale_bytes(rows, columns)));
  for (std::int64_t row = 0; row < padded_rows; ++row) {
    for (std::int64_t column = 0; column < padded_columns; ++column) {
      const std::int64_t offset = scale_offset(row, column, columns);
      ASSERT_GE(offset, 0);
      ASSERT_LT(offset, scale_bytes(rows, columns)) << row << "," << column;
      ASSERT_EQ(uses[static_cast<std::size_t>(offset)]++, 0) << row << "," << column;
      // 16-byte rows of a tile hold rows r, r+32, r+64, r+96: what the hardware loads at once.
      ASSERT_EQ(offset % 512 / 16, row % 32);
      ASSERT_EQ(offset / 512, row / 128 * (padded_columns / 4) + column / 4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BlackwellLayout,
                         ::testing::Values(Shape(1, 1), Shape(16, 1), Shape(31, 3), Shape(32, 4),
                                           Shape(33, 5), Shape(127, 7), Shape(128, 4), Shape(129, 4),
                                           Shape(128, 9), Shape(200, 6), Shape(256, 16), Shape(300, 31),
                                           Shape(1000, 17)));

}  // namespace
}  // namespace tetrad::blackwell
