// SPDX-License-Identifier: Apache-2.0
// Centring, spelled out in f32 in the order that ops/centring.h defines: every backend gives these bits.

#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::centring_test {
namespace {

struct Shape {
  std::int64_t rows, width;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {64, 16}, {65, 40}, {300, 33}};

double rounded(float value, DType dtype) {
  return static_cast<double>(dtype == DType::bf16 ? round_to_bf16(value) : value);
}

std::vector<float> sums_of(const Values& x, std::int64_t rows, std::int64_t width) {
  std::vector<float> sums;
  for (std::int64_t col = 0; col < width; ++col) {
    float sum = 0;
    for (std::int64_t first = 0; first < rows; first += 64) {
      float slice = 0;
      for (std::int64_t row = first; row < std::min(rows, first + 64); ++row)
        slice += static_cast<float>(x[static_cast<std::size_t>(row * width + col)]);
      sum += slice;
    }
    sums.push_back(sum);
  }
  return sums;
}

Values to_values(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class Centring : public OpTest {};

TEST_P(Centring, TakesTheMeanOfTheRowsAway) {
  for (const auto& [rows, width] : kShapes) {
    Values values = random_values(rows * width, 1);
    for (double& value : values) value += 3;
    const TestMatrix x(storage(), rows, width, values);
    TestMatrix sums({DType::f32}, 1, width);
    TestMatrix mean({DType::f32}, 1, width);
    TestMatrix out(storage(), rows, width);
    device().column_sums({x.view(), sums.mutable_view()});
    const std::vector<float> expected = sums_of(x.values(), rows, width);
    EXPECT_EQ(sums.values(), to_values(expected));

    device().centre({x.view(), sums.view(), mean.mutable_view(), out.mutable_view()});
    const float share = 1.0f / static_cast<float>(rows);
    Values expected_mean;
    for (const float sum : expected) expected_mean.push_back(static_cast<double>(sum * share));
    EXPECT_EQ(mean.values(), expected_mean);
    Values expected_out = x.values();
    for (std::size_t i = 0; i < expected_out.size(); ++i)
      expected_out[i] = rounded(static_cast<float>(expected_out[i]) -
                                    static_cast<float>(expected_mean[i % static_cast<std::size_t>(width)]),
                                dtype());
    EXPECT_EQ(out.values(), expected_out);
    EXPECT_TRUE(out.guards_untouched() && sums.guards_untouched() && mean.guards_untouched());
  }
}

TEST_P(Centring, AddsRowsAndOuterProducts) {
  for (const auto& [rows, width] : kShapes) {
    const TestMatrix row({DType::f32}, 1, width, random_values(width, 1));
    const TestMatrix column({DType::f32}, 1, rows, random_values(rows, 2));
    const TestMatrix before(storage(), rows, width, random_values(rows * width, 3));
    TestMatrix out = before;
    device().add_row({row.view(), out.mutable_view()});
    TestMatrix sum({DType::f32}, rows, width, before.values());
    device().add_outer({column.view(), row.view(), sum.mutable_view()});
    Values with_row = before.values();
    Values with_outer = before.values();
    for (std::size_t i = 0; i < with_row.size(); ++i) {
      const auto value = static_cast<float>(with_row[i]);
      const auto of_row = static_cast<float>(row.values()[i % static_cast<std::size_t>(width)]);
      const auto of_column = static_cast<float>(column.values()[i / static_cast<std::size_t>(width)]);
      with_row[i] = rounded(value + of_row, dtype());
      const float product = of_column * of_row;
      with_outer[i] = static_cast<double>(value + product);
    }
    EXPECT_EQ(out.values(), with_row);
    EXPECT_EQ(sum.values(), with_outer);
    EXPECT_TRUE(out.guards_untouched() && sum.guards_untouched());
  }
}

TEST_P(Centring, DoesNotDependOnThreads) {
  const TestMatrix x(storage(), 400, 100, random_values(40000, 1));
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    TestMatrix sums({DType::f32}, 1, 100);
    TestMatrix mean({DType::f32}, 1, 100);
    TestMatrix out(storage(), 400, 100);
    on.column_sums({x.view(), sums.mutable_view()});
    on.centre({x.view(), sums.view(), mean.mutable_view(), out.mutable_view()});
    return std::pair(sums.values(), out.values());
  });
}

TEST_P(Centring, RefusesShapesThatDoNotFit) {
  const TestMatrix x(storage(), 2, 4, random_values(8, 1));
  TestMatrix short_row({DType::f32}, 1, 3);
  TestMatrix out(storage(), 2, 4);
  EXPECT_THROW(device().column_sums({x.view(), short_row.mutable_view()}), Error);
  EXPECT_THROW(device().centre({x.view(), short_row.view(), short_row.mutable_view(), out.mutable_view()}),
               Error);
  EXPECT_THROW(device().add_row({short_row.view(), out.mutable_view()}), Error);
  EXPECT_THROW(device().add_outer({short_row.view(), short_row.view(), short_row.mutable_view()}), Error);
}

TETRAD_INSTANTIATE_OP_TEST(Centring);

}  // namespace
}  // namespace tetrad::testing::centring_test
