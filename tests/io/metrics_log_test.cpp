// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/metrics_log.h"

#include <gtest/gtest.h>

#include "support/file_size_limit.h"
#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

using testing::FileSizeLimit;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

std::string line(int step, const std::string& kind = "train") {
  return fmt::format(R"({{"kind":"{}","step":{}}})", kind, step);
}

std::string lines(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step) text += line(step) + "\n";
  return text;
}

void append(MetricsLog& log, int first, int last) {
  for (int step = first; step <= last; ++step) log.append(line(step));
}

TEST(MetricsLog, AppendsWholeLinesAtOnce) {
  const TemporaryFolder folder;
  MetricsLog log(folder / "metrics.jsonl", -1);
  append(log, 1, 3);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), lines(1, 3));  // No flush needed.
  log.sync();
  EXPECT_THROW(log.append("{}\n{}"), Error);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), lines(1, 3));
}

TEST(MetricsLog, ResumedFileEqualsThatOfAnUninterruptedRun) {
  const TemporaryFolder folder;
  for (const std::string_view torn : {"", R"({"kind":"train","st)", R"({"kind":"train","step":4})"}) {
    write_file(folder / "m", lines(1, 7) + std::string(torn));
    MetricsLog log(folder / "m", 4);
    EXPECT_EQ(read_file(folder / "m"), lines(1, 4));
    append(log, 5, 9);
    EXPECT_EQ(read_file(folder / "m"), lines(1, 9));
  }
  EXPECT_EQ(folder.files(), std::vector<std::string>{"m"});
}

TEST(MetricsLog, CutsByStepAndNotByPlace) {
  const TemporaryFolder folder;
  MetricsLog log(folder / "m", -1);
  log.append(line(5, "event"));
  log.append(line(6));
  log.append(line(5, "eval"));
  log.append(line(-1));
  EXPECT_EQ(log.cut_after(5), 1);
  EXPECT_EQ(log.cut_after(5), 0);
  EXPECT_EQ(read_file(folder / "m"), line(5, "event") + "\n" + line(5, "eval") + "\n" + line(-1) + "\n");
  log.append(line(6));
  EXPECT_NE(read_file(folder / "m").find("\"step\":6"), std::string::npos);
}

TEST(MetricsLog, CutsWhatCameAfterACheckpoint) {
  const TemporaryFolder folder;
  const std::string kept =
      "{\"kind\":\"step\",\"step\":4}\n{\"kind\":\"checkpoint\",\"step\":4}\n{\"kind\":\"resume\",\"step\":4}"
      "\n";
  write_file(folder / "m", kept + "{\"kind\":\"event\",\"step\":4}\n{\"kind\":\"step\",\"step\":5}\n");
  MetricsLog log(folder / "m", 4);
  EXPECT_TRUE(log.cut_after_checkpoint(4));
  EXPECT_EQ(read_file(folder / "m"), kept);

  write_file(folder / "n", "{\"kind\":\"step\",\"step\":4}\n{\"kind\":\"event\",\"step\":4}\n");
  MetricsLog without(folder / "n", 4);
  EXPECT_FALSE(without.cut_after_checkpoint(4)) << "killed before the line of the checkpoint";
}

TEST(MetricsLog, DropsDamagedLines) {
  const TemporaryFolder folder;
  const std::string bad = std::string(20, '\0') + "\nnot json\n[]\n{}\n{\"step\":1.5}\n{\"step\":\"1\"}\n\n" +
                          std::string(100'000, '[') + "\n{\"step\":18446744073709551615}\n";
  write_file(folder / "m", lines(1, 2) + bad + lines(3, 3));
  MetricsLog log(folder / "m", 9);
  EXPECT_EQ(read_file(folder / "m"), lines(1, 3));
}

TEST(MetricsLog, BeginsEmpty) {
  const TemporaryFolder folder;
  write_file(folder / "m", lines(0, 4));
  const MetricsLog log(folder / "m", -1);
  EXPECT_EQ(read_file(folder / "m"), "");
}

TEST(MetricsLog, FailedCutLeavesTheFile) {
  const TemporaryFolder folder;
  write_file(folder / "m", lines(1, 4));
  set_failpoints("file.write=enospc");
  EXPECT_THROW(MetricsLog(folder / "m", 2), Error);
  set_failpoints("");
  EXPECT_EQ(read_file(folder / "m"), lines(1, 4));
  EXPECT_EQ(folder.files(), std::vector<std::string>{"m"});
}

TEST(MetricsLog, FullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  MetricsLog log(folder / "m", -1);
  append(log, 1, 3);
  {
    const FileSizeLimit limit(lines(1, 3).size() + 10);  // A part of the next line still fits.
    EXPECT_THROW(log.append(line(4)), Error);
  }
  EXPECT_EQ(read_file(folder / "m"), lines(1, 3));
  set_failpoints("metrics.write=eio");
  EXPECT_THROW(log.append(line(4)), Error);
  set_failpoints("");
  append(log, 4, 5);
  EXPECT_EQ(read_file(folder / "m"), lines(1, 5));
}

TEST(MetricsLog, RefusesBadPaths) {
  const TemporaryFolder folder;
  EXPECT_THROW(MetricsLog(folder / "missing/m", 0), Error);
  EXPECT_THROW(MetricsLog(folder.path(), 0), Error);
}

}  // namespace
}  // namespace tetrad
