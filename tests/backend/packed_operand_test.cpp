// SPDX-License-Identifier: Apache-2.0
// Products of an operand that was packed for many of them: the same bits as without.

#include <gtest/gtest.h>

#include "support/matrices.h"

namespace tetrad::testing::packed_operand_test {
namespace {

constexpr std::int64_t kCols = 600;  // more than a slice of the depth, and no multiple of 32

class PackedOperands : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
  void SetUp() override {
    const TestMatrix b({}, 16, 16, random_values(16 * 16, 1));
    PackedOperand packed;
    if (device().pack(b.view(), packed)) return;
    EXPECT_NE(GetParam(), "cpu");
    GTEST_SKIP() << "this backend reads operands as they are";
  }

  void expect_same(const GemmOperand& a, const GemmOperand& b, DType dtype) {
    PackedOperand packed;
    ASSERT_TRUE(device().pack(b, packed));
    TestMatrix plain({dtype, true}, a.rows(), b.rows());
    TestMatrix with({dtype, true}, a.rows(), b.rows());
    device().gemm(a, b, plain.mutable_view());
    device().gemm(a, b.with(packed), with.mutable_view());
    EXPECT_TRUE(plain.same_bytes(with));
    EXPECT_TRUE(with.guards_untouched());
  }
};
INSTANTIATE_TEST_SUITE_P(All, PackedOperands, ::testing::ValuesIn(backend_names()), BackendTestName());

TEST_P(PackedOperands, GiveTheSameProducts) {
  for (const std::int64_t columns : {16, 112, 3200}) {  // the last: several panels
    const TestMatrix f32({DType::f32}, columns, kCols, random_values(columns * kCols, 1));
    const TestMatrix bf16({DType::bf16}, columns, kCols, random_values(columns * kCols, 2));
    const TestMatrix transposed({DType::bf16}, kCols, columns, random_values(columns * kCols, 3));
    QuantizedTensor nvfp4, fp8;
    const TestMatrix even({DType::bf16}, columns, kCols + 8, random_values(columns * (kCols + 8), 4));
    device().quantize(even.view(), {.block = {16, 16}}, {}, nvfp4);
    device().quantize(even.view(), {.format = Format::fp8, .block = {1, 128}}, {}, fp8);
    for (const std::int64_t rows :
         columns < 3200 ? std::vector<std::int64_t>{1, 5, 100} : std::vector<std::int64_t>{5}) {
      SCOPED_TRACE(std::to_string(rows) + " by " + std::to_string(columns));
      const TestMatrix x({DType::bf16}, rows, kCols, random_values(rows * kCols, 5));
      const TestMatrix wide_x({DType::f32}, rows, kCols, random_values(rows * kCols, 6));
      const TestMatrix even_x({DType::bf16}, rows, kCols + 8, random_values(rows * (kCols + 8), 7));
      QuantizedTensor codes;
      device().quantize(even_x.view(), {.block = {1, 16}}, {}, codes);
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const GemmOperand& a : {GemmOperand(x.view()), GemmOperand(wide_x.view())})
          for (const GemmOperand& b : {GemmOperand(f32.view()), GemmOperand(bf16.view()),
                                       GemmOperand(transposed.view()).transposed()})
            expect_same(a, b, dtype);
      expect_same(codes, nvfp4, DType::bf16);
      expect_same(codes, fp8, DType::bf16);
    }
  }
}

TEST_P(PackedOperands, ArePackedAnewInTheSameMemory) {
  PackedOperand packed;
  const TestMatrix x({DType::bf16}, 3, kCols, random_values(3 * kCols, 5));
  for (const std::int64_t columns : {320, 16, 48}) {
    const TestMatrix b({DType::bf16}, columns, kCols, random_values(columns * kCols, 8));
    ASSERT_TRUE(device().pack(b.view(), packed));
    TestMatrix plain({DType::f32}, 3, columns);
    TestMatrix with({DType::f32}, 3, columns);
    device().gemm(x.view(), b.view(), plain.mutable_view());
    device().gemm(x.view(), GemmOperand(b.view()).with(packed), with.mutable_view());
    EXPECT_TRUE(plain.same_bytes(with));
  }
}

TEST(GemmOperand, IsPackedOneWayRound) {
  const TestMatrix b({}, 16, 32, random_values(16 * 32, 1));
  const PackedOperand packed;
  EXPECT_EQ(GemmOperand(b.view()).with(packed).packed(), &packed);
  EXPECT_EQ(GemmOperand(b.view()).with(packed).transposed().packed(), nullptr);
}

}  // namespace
}  // namespace tetrad::testing::packed_operand_test
