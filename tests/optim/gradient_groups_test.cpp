// SPDX-License-Identifier: Apache-2.0
// Gradients of groups: added in the order of the tree, whatever their number.

#include "tetrad/optim/gradient_groups.h"

#include <gtest/gtest.h>

#include "support/backends.h"
#include "tetrad/numerics/tree_sum.h"

namespace tetrad::testing::gradient_groups_test {
namespace {

class GradientGroupsOf : public ::testing::TestWithParam<int> {};

/// Of values whose sum depends on the order.
float value(int group, int i) {
  return static_cast<float>((group * 7919 + i * 104729) % 1000 - 500) * (group % 3 == 0 ? 1e-3f : 37.0f);
}

TEST_P(GradientGroupsOf, AreAddedInTheOrderOfTheTree) {
  constexpr int kSize = 129;
  const int groups = GetParam();
  const std::unique_ptr<Backend> backend = make_cpu_backend({.threads = 1, .instruction_set = {}});
  Tensor gradient = backend->make_tensor(DType::f32, 1, kSize);
  const std::span<float> values(gradient.f32(), kSize);
  GradientGroups sums(*backend, {values, {}}, groups);
  const auto end_group = [&] {
    sums.end_group(0);
    sums.end_group(1);  // of which another rank has all
    sums.next_group();
  };
  for (int repeat = 0; repeat < 2; ++repeat) {
    // A step that was broken off leaves nothing behind.
    for (int group = 0; group < (repeat == 0 ? 0 : groups - 1); ++group) end_group();
    sums.restart();
    for (int group = 0; group < groups; ++group) {
      for (int i = 0; i < kSize; ++i) gradient.f32()[i] = value(group, i);
      EXPECT_EQ(sums.is_last(), group + 1 == groups);
      end_group();
    }
    for (int i = 0; i < kSize; ++i) {
      TreeSum<float, 8> expected;
      for (int group = 0; group < groups; ++group) expected.add(value(group, i));
      ASSERT_EQ(gradient.f32()[i], expected.total()) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GradientGroupsOf, ::testing::Range(1, 18));

}  // namespace
}  // namespace tetrad::testing::gradient_groups_test
