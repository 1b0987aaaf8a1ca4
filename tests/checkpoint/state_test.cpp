// SPDX-License-Identifier: Apache-2.0
// state.json: what a run's bits depend on travels with it, and what changed is named.

#include <gtest/gtest.h>

#include <fstream>

#include "support/files.h"
#include "tetrad/checkpoint/snapshot.h"

namespace tetrad::testing::state_test {
namespace {

RunState read_back(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "state.json") << text;
  return load_state(folder.path());
}

RunState some_state() {
  RunState state;
  state.step = 7;
  state.data = nlohmann::json::object();
  state.loss_watch = nlohmann::json::object();
  state.build = "test";
  state.bits_depend_on = {{"backend", "cpu"}, {"C library", "2.36"}};
  return state;
}

TEST(State, RemembersWhatItsBitsDependOn) {
  EXPECT_EQ(read_back(state_text(some_state())).bits_depend_on, some_state().bits_depend_on);
}

TEST(State, OfAProgramThatDidNotRecordItIsRead) {
  nlohmann::json json = nlohmann::json::parse(state_text(some_state()));
  ASSERT_EQ(json.erase("bits_depend_on"), 1U);
  const RunState state = read_back(json.dump());
  EXPECT_EQ(state.step, 7);
  EXPECT_TRUE(state.bits_depend_on.empty());
  EXPECT_EQ(changes_of_bits(state.bits_depend_on, {{"backend", "cuda"}}), "");
}

TEST(State, NamesWhatChanged) {
  EXPECT_EQ(changes_of_bits({{"backend", "cpu"}}, {{"backend", "cpu"}}), "");
  EXPECT_EQ(changes_of_bits({{"backend", "cuda"}, {"GPU", "H100"}}, {{"backend", "cuda"}, {"GPU", "H200"}}),
            "GPU: H100 before, H200 now");
  EXPECT_EQ(changes_of_bits({{"backend", "cpu"}}, {{"backend", "cuda"}, {"GPU", "H200"}}),
            "GPU: nothing before, H200 now; backend: cpu before, cuda now");
}

}  // namespace
}  // namespace tetrad::testing::state_test
