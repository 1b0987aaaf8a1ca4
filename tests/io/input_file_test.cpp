// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/input_file.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "support/errors.h"
#include "support/files.h"
#include "tetrad/core/error.h"

namespace tetrad::testing::input_file_test {
namespace {

std::string read(const InputFile& file, std::uint64_t offset, std::size_t count) {
  std::string text(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(InputFile, ReadsPieces) {
  const TemporaryFolder folder;
  write_file(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(read(file, 0, 10), "0123456789");
  EXPECT_EQ(read(file, 7, 3), "789");
  EXPECT_EQ(read(file, 10, 0), "");
}

TEST(InputFile, OneThatBecomesShorterIsAnErrorAndNoSignal) {
  const TemporaryFolder folder;
  write_file(folder / "a", std::string(100'000, 'x'));
  const InputFile file(folder / "a");
  std::filesystem::resize_file(folder / "a", 5'000);
  EXPECT_EQ(read(file, 0, 5'000), std::string(5'000, 'x'));
  try {
    read(file, 90'000, 10);
    ADD_FAILURE() << "bytes that are not there were read";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::failure);
    EXPECT_NE(std::string(error.what()).find("100000 bytes when it was opened"), std::string::npos)
        << error.what();
  }
}

TEST(InputFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  expect_bad_input([&] { InputFile file(folder.path()); }, {"folder"});
  expect_bad_input([&] { InputFile file(folder / "nothing"); }, {"nothing"});
}

}  // namespace
}  // namespace tetrad::testing::input_file_test
