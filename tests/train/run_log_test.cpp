// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/run_log.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace tetrad::testing::run_log_test {
namespace {

class Lines final : public Display {
 public:
  void say(const std::string& line) override { lines.push_back(line); }
  std::vector<std::string> lines;
};

TEST(RunLog, ThePrefixIsMadeForEveryLineAnew) {
  const TemporaryFolder folder;
  Lines display;
  RunLog log(folder / "log.txt", display);
  log.say("first");
  log.set_prefix([left = 3]() mutable { return fmt::format("[{} left] ", left--); });
  log.say("second");
  log.progress("third");
  EXPECT_EQ(display.lines, (std::vector<std::string>{"first", "[3 left] second", "[2 left] third"}));
  EXPECT_EQ(read_file(folder / "log.txt").find("left"), std::string::npos);
}

}  // namespace
}  // namespace tetrad::testing::run_log_test
