// SPDX-License-Identifier: Apache-2.0
// Sums and copies of matrices: exact up to one rounding, so compared for equality.

#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::elementwise_test {
namespace {

struct Shape {
  std::int64_t rows, width;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 7}, {70, 300}};

double rounded(double value, DType dtype) {
  const auto f32 = static_cast<float>(value);
  return static_cast<double>(dtype == DType::bf16 ? round_to_bf16(f32) : f32);
}

class Elementwise : public OpTest {};

TEST_P(Elementwise, AddRoundsTheSumOnce) {
  for (const auto& [rows, width] : kShapes) {
    const TestMatrix a(storage(), rows, width, random_values(rows * width, 1));
    const TestMatrix b(storage(), rows, width, random_values(rows * width, 2, 100));
    TestMatrix sum(storage(), rows, width);
    device().add({a.view(), b.view(), sum.mutable_view()});
    std::vector<double> expected = sum_of(a.values(), b.values());
    for (double& value : expected) value = rounded(value, dtype());
    EXPECT_EQ(sum.values(), expected);
    EXPECT_TRUE(sum.guards_untouched());

    TestMatrix in_place = a;
    device().add({in_place.view(), b.view(), in_place.mutable_view()});
    EXPECT_EQ(in_place.values(), expected) << "the sum may be written over a";
  }
}

TEST_P(Elementwise, CastRoundsToNearest) {
  for (const DType out_dtype : {DType::f32, DType::bf16})
    for (const auto& [rows, width] : kShapes) {
      std::vector<double> values = random_values(rows * width, 1);
      values[0] = 1 + 0x1p-8;  // a tie between 1 and 1 + 2^-7: to even
      const TestMatrix in(storage(), rows, width, values);
      TestMatrix out({out_dtype, storage().strided}, rows, width);
      device().cast({in.view(), out.mutable_view()});
      std::vector<double> expected = in.values();
      for (double& value : expected) value = rounded(value, out_dtype);
      EXPECT_EQ(out.values(), expected);
      EXPECT_TRUE(out.guards_untouched());
    }
}

TEST_P(Elementwise, KeepsWhatIsNotFinite) {
  const TestMatrix in(storage(), 1, 3, {HUGE_VAL, -HUGE_VAL, std::nan("")});
  for (const DType out_dtype : {DType::f32, DType::bf16}) {
    TestMatrix out({out_dtype, false}, 1, 3);
    device().cast({in.view(), out.mutable_view()});
    EXPECT_EQ(out.values()[0], INFINITY);
    EXPECT_EQ(out.values()[1], -INFINITY);
    EXPECT_TRUE(std::isnan(out.values()[2]));
  }
}

TEST_P(Elementwise, DoesNotDependOnThreads) {
  const TestMatrix a(storage(), 400, 100, random_values(40000, 1));
  const TestMatrix b(storage(), 400, 100, random_values(40000, 2));
  expect_same_for_any_threads(backend_name(), [&](Backend& on) {
    TestMatrix sum(storage(), 400, 100);
    TestMatrix copy({DType::bf16, false}, 400, 100);
    on.add({a.view(), b.view(), sum.mutable_view()});
    on.cast({a.view(), copy.mutable_view()});
    return std::pair(sum.values(), copy.values());
  });
}

TEST_P(Elementwise, RefusesShapesThatDoNotFit) {
  const TestMatrix a(storage(), 2, 4, random_values(8, 1));
  TestMatrix sum(storage(), 2, 3);
  EXPECT_THROW(device().add({a.view(), a.view(), sum.mutable_view()}), Error);
  EXPECT_THROW(device().cast({a.view(), sum.mutable_view()}), Error);
}

TETRAD_INSTANTIATE_OP_TEST(Elementwise);

}  // namespace
}  // namespace tetrad::testing::elementwise_test
