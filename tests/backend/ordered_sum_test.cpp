// SPDX-License-Identifier: Apache-2.0
// Sums in the order of the tree against the tree built level by level, to the bit; and what makes ranks
// interchangeable: blocks of parts summed by themselves are nodes of it.

#include "tetrad/ops/ordered_sum.h"

#include <algorithm>

#include "support/matrices.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::ordered_sum_test {
namespace {

std::vector<float> plus(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  std::ranges::transform(a, b, sum.begin(), std::plus());
  return sum;
}

/// The definition, word by word.
std::vector<float> tree(std::vector<std::vector<float>> level) {
  while (level.size() > 1) {
    std::vector<std::vector<float>> next;
    for (std::size_t k = 0; k + 1 < level.size(); k += 2) next.push_back(plus(level[k], level[k + 1]));
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return level.front();
}

/// Values of very different sizes, so that another order gives other bits.
std::vector<double> uneven_values(std::int64_t size, unsigned seed) {
  std::vector<double> values = random_values(size, seed);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= std::exp2((i + 5 * seed) % 31);
  return values;
}

struct Parts {
  std::vector<TestMatrix> matrices;

  Parts(Storage storage, std::int64_t count, std::int64_t size) {
    for (std::int64_t k = 0; k < count; ++k)
      matrices.emplace_back(storage, 1, size, uneven_values(size, static_cast<unsigned>(k)));
  }
  std::vector<const void*> pointers(std::size_t first = 0, std::size_t count = SIZE_MAX) const {
    std::vector<const void*> result;
    for (std::size_t k = first; k < matrices.size() && k - first < count; ++k)
      result.push_back(matrices[k].view().data);
    return result;
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> result;
    for (const TestMatrix& matrix : matrices) result.push_back(to_f32(matrix.values()));
    return result;
  }
};

std::vector<float> sum_on(Backend& device, const std::vector<const void*>& parts, DType dtype,
                          std::int64_t size) {
  TestMatrix out({DType::f32, true}, 1, size);  // not aligned
  device.ordered_sum({parts, dtype, static_cast<float*>(out.mutable_view().data), size});
  EXPECT_TRUE(out.guards_untouched());
  return to_f32(out.values());
}

class OrderedSums : public OpTest {};

TEST_P(OrderedSums, AreTheTree) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 33})
    for (const std::int64_t size : {1, 15, 16, 17, 131}) {
      const Parts parts(storage(), count, size);
      EXPECT_EQ(sum_on(device(), parts.pointers(), dtype(), size), tree(parts.values()))
          << count << " parts of " << size;
    }
}

TEST_P(OrderedSums, TakeAlignedMemoryOfMoreThanOnePiece) {
  constexpr std::int64_t kSize = 40'003;
  const Parts parts({dtype(), false}, 6, kSize);
  std::vector<float> out(kSize);
  device().ordered_sum({parts.pointers(), dtype(), out.data(), kSize});
  EXPECT_EQ(out, tree(parts.values()));
}

TEST_P(OrderedSums, DifferFromASumInAnyOtherOrder) {
  const Parts parts(storage(), 8, 1000);
  std::vector<const void*> pointers = parts.pointers();
  const std::vector<float> in_order = sum_on(device(), pointers, dtype(), 1000);
  std::swap(pointers[1], pointers[2]);
  EXPECT_NE(sum_on(device(), pointers, dtype(), 1000), in_order);
}

TEST_P(OrderedSums, OfRanksAreThoseOfOne) {
  constexpr std::int64_t kSize = 500;
  for (std::int64_t count = 1; count <= 24; ++count) {
    const Parts parts(storage(), count, kSize);
    const std::vector<float> whole = sum_on(device(), parts.pointers(), dtype(), kSize);
    for (std::int64_t ranks = 1; ranks <= count; ++ranks) {
      if (count % ranks != 0) continue;
      const auto block = static_cast<std::size_t>(count / ranks);
      std::vector<std::vector<float>> sums;
      std::vector<const void*> pointers;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
        sums.push_back(sum_on(device(), parts.pointers(rank * block, block), dtype(), kSize));
      for (const std::vector<float>& sum : sums) pointers.push_back(sum.data());
      EXPECT_EQ(sum_on(device(), pointers, DType::f32, kSize) == whole, ranks_keep_order(count, ranks))
          << count << " parts on " << ranks << " ranks";
    }
  }
}

TEST_P(OrderedSums, MayBeWrittenOverAPart) {
  const Parts parts({DType::f32, false}, 5, 1000);
  const std::vector<float> expected = tree(parts.values());
  for (std::size_t k = 0; k < 5; ++k) {
    Parts changed = parts;
    auto* out = static_cast<float*>(changed.matrices[k].mutable_view().data);
    device().ordered_sum({changed.pointers(), DType::f32, out, 1000});
    EXPECT_EQ(changed.values()[k], expected);
  }
}

TEST_P(OrderedSums, KeepNegativeZerosAndWhatIsNotFinite) {
  const TestMatrix part(storage(), 1, 3, {-0.0, -HUGE_VAL, std::nan("")});
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
    const std::vector<float> sum =
        sum_on(device(), std::vector<const void*>(count, part.view().data), dtype(), 3);
    EXPECT_TRUE(sum[0] == 0 && std::signbit(sum[0]));
    EXPECT_EQ(sum[1], -INFINITY);
    EXPECT_TRUE(std::isnan(sum[2]));
  }
}

TEST_P(OrderedSums, DoNotDependOnThreads) {
  const Parts parts(storage(), 7, 100'000);
  expect_same_for_any_threads(backend_name(),
                              [&](Backend& on) { return sum_on(on, parts.pointers(), dtype(), 100'000); });
}

TEST_P(OrderedSums, RefuseWhatMakesNoSense) {
  const Parts parts(storage(), 1, 4);
  float out[4];
  EXPECT_THROW(device().ordered_sum({{}, dtype(), out, 4}), Error);
  EXPECT_THROW(device().ordered_sum({parts.pointers(), DType::f64, out, 4}), Error);
  EXPECT_THROW(device().ordered_sum({parts.pointers(), dtype(), out, -1}), Error);
}

TETRAD_INSTANTIATE_OP_TEST(OrderedSums);

TEST(RanksKeepOrder, WhereBlocksAreNodesOfTheTree) {
  for (std::int64_t parts = 1; parts <= 64; parts *= 2)
    for (std::int64_t ranks = 1; ranks <= parts; ranks *= 2) EXPECT_TRUE(ranks_keep_order(parts, ranks));
  EXPECT_TRUE(ranks_keep_order(24, 24));  // three nodes of eight
  EXPECT_TRUE(ranks_keep_order(24, 3));
  EXPECT_TRUE(ranks_keep_order(24, 1));
  EXPECT_FALSE(ranks_keep_order(24, 2));
  EXPECT_FALSE(ranks_keep_order(8, 3));
  EXPECT_FALSE(ranks_keep_order(8, 16));
  EXPECT_FALSE(ranks_keep_order(8, 0));
  EXPECT_FALSE(ranks_keep_order(0, 1));
}

}  // namespace
}  // namespace tetrad::testing::ordered_sum_test
