// SPDX-License-Identifier: Apache-2.0
// Deviations from a reference against sums in double precision, element by element.

#include "support/matrices.h"

namespace tetrad::testing::deviation_test {
namespace {

/// Values that lie near their reference, and what is added up.
struct Pair {
  std::vector<float> value, reference, sum;

  Pair(std::int64_t size, unsigned seed)
      : reference(to_f32(random_values(size, seed))), sum(to_f32(random_values(size, seed + 1))) {
    const std::vector<double> error = random_values(size, seed + 2, 0.01);
    for (std::size_t i = 0; i < reference.size(); ++i)
      value.push_back(static_cast<float>(reference[i] + error[i]));
  }
  DeviationTensor tensor(bool with_reference, bool with_sum) {
    return {value.data(), with_reference ? reference.data() : nullptr, with_sum ? sum.data() : nullptr,
            static_cast<std::int64_t>(value.size())};
  }
  float deviation(std::size_t i, bool with_reference) const {
    return with_reference ? value[i] - reference[i] : value[i];
  }
};

class Deviation : public ::testing::TestWithParam<std::string> {
 protected:
  Backend& device() { return backend(GetParam()); }
};

TEST_P(Deviation, SumsAreExactToDoublePrecision) {
  for (const bool with_reference : {true, false})
    for (const bool with_sum : {true, false}) {
      // Sizes around the piece that one thread gets, and nothing at all.
      std::vector<Pair> pairs = {Pair(1, 1), Pair(100'003, 4), Pair(0, 7), Pair(1 << 15, 10)};
      const std::vector<Pair> before = pairs;
      std::vector<DeviationTensor> tensors;
      for (Pair& pair : pairs) tensors.push_back(pair.tensor(with_reference, with_sum));
      const std::vector<DeviationSums> got = device().deviations(tensors);
      ASSERT_EQ(got.size(), pairs.size());
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        const Pair& old = before[k];
        long double reference = 0;  // in more than double precision
        long double product = 0;
        long double deviation = 0;
        double size = 0;  // of what product adds, whose signs differ
        for (std::size_t i = 0; i < old.value.size(); ++i) {
          const double r = with_reference ? double{old.reference[i]} : 0;
          const double d = double{old.deviation(i, with_reference)};
          reference += r * r;
          product += r * d;
          deviation += d * d;
          size += std::abs(r * d);
          const float sum = with_sum ? old.sum[i] + old.deviation(i, with_reference) : old.sum[i];
          ASSERT_EQ(pairs[k].sum[i], sum) << "tensor " << k << " element " << i;
        }
        EXPECT_NEAR(got[k].reference, static_cast<double>(reference), 1e-13 * got[k].reference);
        EXPECT_NEAR(got[k].product, static_cast<double>(product), 1e-13 * size);
        EXPECT_NEAR(got[k].deviation, static_cast<double>(deviation), 1e-13 * got[k].deviation);
        EXPECT_EQ(pairs[k].value, old.value);
        EXPECT_EQ(pairs[k].reference, old.reference);
      }
    }
}

TEST_P(Deviation, EqualTensorsDeviateByNothing) {
  Pair pair(40'000, 1);
  pair.value = pair.reference;
  const std::vector<DeviationTensor> tensors = {pair.tensor(true, false)};
  const DeviationSums got = device().deviations(tensors)[0];
  EXPECT_EQ(got.deviation, 0);
  EXPECT_EQ(got.product, 0);
  EXPECT_GT(got.reference, 0);
}

TEST_P(Deviation, WhatIsNotFiniteShowsOnlyThere) {
  for (const float bad : {INFINITY, NAN}) {
    std::vector<Pair> pairs(2, Pair(40'000, 1));
    pairs[1].value[39'999] = bad;
    const std::vector<DeviationTensor> tensors = {pairs[0].tensor(true, false), pairs[1].tensor(true, false)};
    const std::vector<DeviationSums> got = device().deviations(tensors);
    EXPECT_TRUE(std::isfinite(got[0].deviation)) << bad;
    EXPECT_FALSE(std::isfinite(got[1].deviation)) << bad;
  }
}

TEST_P(Deviation, DoesNotDependOnThreads) {
  expect_same_for_any_threads(GetParam(), [&](Backend& on) {
    Pair a(100'000, 1);
    Pair b(50, 2);
    const std::vector<DeviationTensor> tensors = {a.tensor(true, true), b.tensor(false, true)};
    return std::tuple(on.deviations(tensors), a.sum, b.sum);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Deviation, ::testing::ValuesIn(backend_names()), BackendTestName());

}  // namespace
}  // namespace tetrad::testing::deviation_test
