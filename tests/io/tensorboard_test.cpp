// SPDX-License-Identifier: Apache-2.0
#include "tetrad/io/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <regex>

#include "support/file_size_limit.h"
#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"

namespace tetrad {
namespace {

using testing::FileSizeLimit;
using testing::read_file;
using testing::TemporaryFolder;

// ---- A reader of its own: bit by bit where the writer uses tables, and strict ----

std::uint32_t slow_masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc % 2 != 0) ? crc / 2 ^ 0x82F63B78U : crc / 2;
  }
  crc = ~crc;
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

template <typename T>
T take(std::string_view& in) {
  T value{};
  if (in.size() < sizeof(T)) throw std::runtime_error("the file ends too early");
  std::memcpy(&value, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return value;
}

std::string_view take_bytes(std::string_view& in, std::size_t count) {
  if (in.size() < count) throw std::runtime_error("the file ends too early");
  const std::string_view bytes = in.substr(0, count);
  in.remove_prefix(count);
  return bytes;
}

std::uint64_t take_varint(std::string_view& in) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = take<unsigned char>(in);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("a varint does not end");
}

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  std::string tag;
  float value = 0;
  std::uint64_t session = 0;
};

/// A message of the one field `field`, of the wire type "bytes".
std::string_view only_field(std::string_view message, unsigned field) {
  if (take_varint(message) != (field << 3 | 2U)) throw std::runtime_error("another field");
  const std::string_view content = take_bytes(message, take_varint(message));
  if (!message.empty()) throw std::runtime_error("more than one field");
  return content;
}

Event parse_event(std::string_view in) {
  Event event;
  while (!in.empty()) {
    switch (take_varint(in)) {
      case 1 << 3 | 1:
        event.wall_time = take<double>(in);
        break;
      case 2 << 3 | 0:
        event.step = static_cast<std::int64_t>(take_varint(in));
        break;
      case 3 << 3 | 2:
        event.version = take_bytes(in, take_varint(in));
        break;
      case 5 << 3 | 2: {
        std::string_view value = only_field(take_bytes(in, take_varint(in)), 1);
        if (take_varint(value) != (1 << 3 | 2)) throw std::runtime_error("no tag");
        event.tag = take_bytes(value, take_varint(value));
        if (take_varint(value) != (2 << 3 | 5)) throw std::runtime_error("no simple_value");
        event.value = take<float>(value);
        if (!value.empty()) throw std::runtime_error("more in the value");
        break;
      }
      case 7 << 3 | 2: {
        std::string_view session = take_bytes(in, take_varint(in));
        if (take_varint(session) != (1 << 3 | 0)) throw std::runtime_error("no status");
        event.session = take_varint(session);
        break;
      }
      default:
        throw std::runtime_error("unknown field");
    }
  }
  return event;
}

std::vector<Event> parse_file(const std::string& file) {
  std::vector<Event> events;
  std::string_view in = file;
  while (!in.empty()) {
    const std::string_view length_bytes = in.substr(0, 8);
    const auto length = take<std::uint64_t>(in);
    if (take<std::uint32_t>(in) != slow_masked_crc(length_bytes))
      throw std::runtime_error("crc of the length");
    const std::string_view data = take_bytes(in, length);
    if (take<std::uint32_t>(in) != slow_masked_crc(data)) throw std::runtime_error("crc of the data");
    events.push_back(parse_event(data));
  }
  return events;
}

// ---- Tests ----

TEST(TensorBoard, WritesWhatAnotherParserReads) {
  const TemporaryFolder folder;
  const auto before = static_cast<double>(std::time(nullptr));
  {
    TensorBoardWriter writer(folder.path(), 300);
    writer.scalar("train/loss", 300, 2.5);
    writer.scalar("train/loss", 1'000'000'000'000, std::nan(""));
    writer.scalar("\xC3\xA9", 0, -1e300);  // Beyond a float: infinity.
    writer.scalar(std::string(300, 't'), 127, 0);
  }
  ASSERT_EQ(folder.files().size(), 1U);
  const std::vector<Event> events = parse_file(read_file(folder / folder.files()[0]));
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].tag, "");
  EXPECT_EQ(events[1].session, 1U);
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[2].tag, "train/loss");
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[2].value, 2.5F);
  EXPECT_EQ(events[3].step, 1'000'000'000'000);
  EXPECT_TRUE(std::isnan(events[3].value));
  EXPECT_EQ(events[4].tag, "\xC3\xA9");
  EXPECT_EQ(events[4].value, -INFINITY);
  EXPECT_EQ(events[5].tag, std::string(300, 't'));
  for (const Event& event : events) {
    EXPECT_GE(event.wall_time, before);
    EXPECT_LE(event.wall_time, before + 60);
  }
}

TEST(TensorBoard, NamesFilesAsTensorBoardExpects) {
  const TemporaryFolder folder;
  const TensorBoardWriter first(folder.path());
  const TensorBoardWriter second(folder.path());
  const std::vector<std::string> files = folder.files();
  ASSERT_EQ(files.size(), 2U);
  for (const std::string& name : files)
    EXPECT_TRUE(std::regex_match(name, std::regex(R"(events\.out\.tfevents\.\d{10}\..+\.\d+\.\d+)"))) << name;
}

TEST(TensorBoard, KeepsRecordsUntilThereIsEnoughOrFlush) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  EXPECT_EQ(parse_file(read_file(writer.path())).size(), 2U);
  writer.scalar("x", 1, 1);
  EXPECT_EQ(parse_file(read_file(writer.path())).size(), 2U);
  writer.flush();
  EXPECT_EQ(parse_file(read_file(writer.path())).size(), 3U);
  for (int i = 0; i < 5000; ++i) writer.scalar("x", i, i);
  EXPECT_GT(read_file(writer.path()).size(), 100'000U);
  writer.flush();
  EXPECT_EQ(parse_file(read_file(writer.path())).size(), 5003U);
}

TEST(TensorBoard, LosesNothingWhenTheDiskIsFullForAWhile) {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path());
  for (int i = 0; i < 100; ++i) writer.scalar("x", i, i);
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(writer.flush(), Error);
  }
  set_failpoints("events.write=enospc");
  EXPECT_THROW(writer.flush(), Error);
  set_failpoints("");
  writer.flush();
  EXPECT_EQ(parse_file(read_file(writer.path())).size(), 102U);
}

TEST(TensorBoard, RefusesAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_THROW(TensorBoardWriter(folder / "missing"), Error);
}

}  // namespace
}  // namespace tetrad
