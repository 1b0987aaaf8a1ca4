// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/run_identity.h"

#include <gtest/gtest.h>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

const RunIdentity& one_run() {
  static const RunIdentity identity{new_run_id(), "settings", {{"a", "hash of a"}, {"b", "hash of b"}}};
  return identity;
}

void expect_refused(const RunIdentity& now, const std::string& word) {
  try {
    check_same_run(one_run(), now, "step-3");
    ADD_FAILURE() << "accepted, though " << word << " differs";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::no_checkpoint);
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(RunIdentity, IdsAreDifferentAndOfTheirForm) {
  const std::string id = new_run_id();
  EXPECT_TRUE(is_run_id(id)) << id;
  EXPECT_EQ(id[14], '4');
  EXPECT_NE(id, new_run_id());
  for (const char* bad : {"", "01234567-89ab-4def-8123-456789abcde", "01234567-89AB-4def-8123-456789abcdef",
                          "0123456789ab-4def-8123-456789abcdef0", "01234567-89ab-4def-8123-456789abcdef\n"})
    EXPECT_FALSE(is_run_id(bad)) << bad;
}

TEST(RunIdentity, TheSameRunGoesOn) {
  EXPECT_NO_THROW(check_same_run(one_run(), one_run(), "step-3"));
  EXPECT_NO_THROW(check_same_run({}, one_run(), "step-3")) << "0.1.0 recorded nothing";
}

TEST(RunIdentity, AnotherRunOrOtherDataIsRefused) {
  RunIdentity other = one_run();
  other.id = new_run_id();
  expect_refused(other, other.id);
  other = one_run();
  other.data["b"] = "hash of something else";
  expect_refused(other, "source b");
  other = one_run();
  other.data.erase("a");
  expect_refused(other, "source a");
  other = one_run();
  other.data["c"] = "hash of c";
  expect_refused(other, "source c");
}

}  // namespace
}  // namespace tetrad
