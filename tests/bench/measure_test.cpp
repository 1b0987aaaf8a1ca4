// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <gtest/gtest.h>

namespace tetrad::bench {
namespace {

/// Tries that take as long as they are said to.
class Tries {
 public:
  explicit Tries(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  /// The last one is repeated.
  double next() { return seconds_[std::min(calls_++, seconds_.size() - 1)]; }
  std::size_t calls() const { return calls_; }

 private:
  std::vector<double> seconds_;
  std::size_t calls_ = 0;
};

TEST(FastestTry, LeavesOutWhatIsLoadedAtFirst) {
  Tries tries({0.3, 0.0625});
  EXPECT_EQ(fastest_try([&] { return tries.next(); }), 0.0625);
  EXPECT_EQ(tries.calls(), 4U) << "the warm-up, and as many as make 0.15 s";
}

TEST(FastestTry, TakesTheLeast) {
  Tries tries({0.3, 0.06, 0.03, 0.05, 0.06});
  EXPECT_EQ(fastest_try([&] { return tries.next(); }), 0.03);
}

TEST(FastestTry, EndsSoonWhereWorkIsSlow) {
  Tries tries({2, 2});
  EXPECT_EQ(fastest_try([&] { return tries.next(); }), 2);
  EXPECT_EQ(tries.calls(), 2U);
}

TEST(Median, IsInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({5}), 5);
}

}  // namespace
}  // namespace tetrad::bench
