// SPDX-License-Identifier: Apache-2.0
// Differences of losses: paired by token, with the error of sequences. Everything is worked out by hand.

#include <gtest/gtest.h>

#include "tetrad/eval/estimate.h"
#include "tetrad/eval/microbatch.h"

namespace tetrad::testing {
namespace {

TEST(PairedLosses, AreTakenBySequence) {
  // Four sequences of two tokens. Losses differ a lot from token to token, and little between a and b.
  const std::vector<float> a = {9, 1, 4, 4, 20, 0, 7, 30};
  const std::vector<float> b = {8, -2, 4, 2, 18, -2, 2, 31};
  std::vector<double> of_a;
  std::vector<double> of_b;
  append_sequence_means(std::span(a).first(4), 2, of_a);
  append_sequence_means(std::span(a).last(4), 2, of_a);
  append_sequence_means(b, 2, of_b);
  EXPECT_EQ(of_a, (std::vector<double>{5, 4, 10, 18.5}));

  // By token 1 3 | 0 2 | 2 2 | 5 -1: by sequence 2, 1, 2, 2.
  const Estimate difference = estimate_difference(of_a, of_b);
  EXPECT_DOUBLE_EQ(difference.mean, 1.75);
  EXPECT_DOUBLE_EQ(difference.error, 0.25);  // sqrt(0.75 / 3 / 4)
  EXPECT_TRUE(difference.is_above_noise());
  EXPECT_TRUE(estimate_difference(of_b, of_a).is_below_noise());
  EXPECT_EQ(estimate_difference(of_a, of_a).error, 0);
  EXPECT_TRUE(estimate_difference(std::span(of_a).first(3), std::span(of_b).first(3)).is_noise()) << "few";
}

}  // namespace
}  // namespace tetrad::testing
