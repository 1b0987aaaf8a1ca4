// SPDX-License-Identifier: Apache-2.0
// Which settings a run may go on with.

#include "tetrad/train/resume.h"

#include <gtest/gtest.h>

namespace tetrad::testing {
namespace {

TEST(ChangedSettings, SignsThatWereFixedBeforeTheyCouldBeLeftOpenAreTheSame) {
  Config saved;
  Config now;
  EXPECT_TRUE(changed_settings(saved, now).empty());
  saved.precision.rht.signs = "fixed";
  EXPECT_TRUE(changed_settings(saved, now).empty());
  saved.precision.rht.signs = "per-step";
  ASSERT_EQ(changed_settings(saved, now).size(), 1U);
  EXPECT_EQ(changed_settings(saved, now)[0].key, "precision.rht.signs");
  now.precision.rht.signs = "fixed";
  saved.precision.rht.signs.reset();
  EXPECT_EQ(changed_settings(saved, now).size(), 1U);
}

}  // namespace
}  // namespace tetrad::testing
