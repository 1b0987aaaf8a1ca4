// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/atomic_file.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

using testing::bytes_of;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

class AtomicFileTest : public ::testing::Test {
 protected:
  ~AtomicFileTest() override { set_failpoints(""); }
};

TEST_F(AtomicFileTest, AppearsOnCommitOnly) {
  const TemporaryFolder folder;
  write_file(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write_at(3, bytes_of("def"));
    file.write_at(0, bytes_of("abc"));
    file.append(bytes_of("ghi"));
    EXPECT_EQ(read_file(folder / "f"), "old");
    file.commit();
    EXPECT_EQ(read_file(folder / "f"), "abcdefghi");
  }
  { AtomicFile(folder / "f").append(bytes_of("abandoned")); }
  EXPECT_EQ(read_file(folder / "f"), "abcdefghi");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"f"});
}

TEST_F(AtomicFileTest, HashesWhatItWrites) {
  const TemporaryFolder folder;
  const std::string big(3'000'001, 'q');
  Sha256 hash;
  AtomicFile file(folder / "f", &hash);
  file.append(bytes_of(big));
  file.append({});
  file.append(bytes_of("end"));
  EXPECT_THROW(file.write_at(0, bytes_of("x")), Error);
  file.commit();
  EXPECT_EQ(read_file(folder / "f"), big + "end");
  EXPECT_EQ(hash.hex(), sha256_hex(bytes_of(big + "end")));
}

TEST_F(AtomicFileTest, EveryFailingCallIsReportedAndLeavesTheOldFile) {
  for (const std::string_view name : kFailpoints) {
    if (!name.starts_with("file.")) continue;
    for (const std::string_view action : {"enospc", "eio"}) {
      const TemporaryFolder folder;
      write_file(folder / "f", "old");
      set_failpoints(fmt::format("{}={}", name, action));
      try {
        write_file_atomically(folder / "f", "new");
        ADD_FAILURE() << name << ' ' << action;
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find(action == "eio" ? "Input/output error" : "No space left"), message.npos)
            << message;
      }
      set_failpoints("");
      // Only the flush of the folder comes after the new file has its name.
      EXPECT_EQ(read_file(folder / "f"), name == "file.fsync_folder" ? "new" : "old") << name;
      EXPECT_EQ(folder.files(), std::vector<std::string>{"f"}) << name;
    }
  }
}

}  // namespace
}  // namespace tetrad
