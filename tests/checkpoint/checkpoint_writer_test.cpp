// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "support/files.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/safetensors.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

using testing::TemporaryFolder;

/// Memory that can be read only while the gate is open.
class Gate {
 public:
  void open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

class GatedReader final : public MemoryReader {
 public:
  explicit GatedReader(Gate& gate) : gate_(gate) {}
  std::span<const std::byte> read(std::span<const std::byte> memory) override {
    gate_.wait();
    return memory;
  }

 private:
  Gate& gate_;
};

class BackgroundCheckpoints : public ::testing::Test {
 protected:
  ~BackgroundCheckpoints() override { set_failpoints(""); }

  CheckpointContents contents(std::int64_t step) {
    CheckpointContents contents;
    contents.step = step;
    contents.build = "test build";
    contents.tensor_files["model.safetensors"] = {
        {"w", DType::u32, {std::ssize(weights_)}, std::as_bytes(std::span(weights_))}};
    contents.text_files["state.json"] = "{}";
    contents.piece_bytes = 1'000'003;
    for (int i = 0; i < kHashThreads; ++i) contents.readers.push_back(std::make_unique<GatedReader>(gate_));
    return contents;
  }

  std::vector<std::uint32_t> saved(const fs::path& checkpoint) const {
    const SafetensorsFile file(checkpoint / "model.safetensors");
    const std::span<const std::byte> bytes = file.bytes(*file.find("w"));
    std::vector<std::uint32_t> values(bytes.size() / sizeof(std::uint32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  void update() { std::iota(weights_.begin(), weights_.end(), ++updates_); }

  const TemporaryFolder run_{testing::memory_folder()};
  std::vector<std::uint32_t> weights_ = std::vector<std::uint32_t>(2'000'000);
  std::uint32_t updates_ = 0;
  Gate gate_;
  CheckpointWriter writer_{CheckpointStore(run_ / "checkpoints", 2)};
};

TEST_F(BackgroundCheckpoints, HoldWhatWasThereWhenTheyBegan) {
  for (std::int64_t step = 1; step <= 4; ++step) {
    gate_.open(false);
    update();
    const std::vector<std::uint32_t> expected = weights_;
    writer_.start(contents(step), {});
    EXPECT_TRUE(writer_.is_writing());
    EXPECT_FALSE(writer_.is_done());
    std::thread opens([&] { gate_.open(true); });
    writer_.wait_until_read();
    update();  // while the rest is made durable
    const WrittenCheckpoint written = writer_.finish();
    opens.join();
    EXPECT_FALSE(writer_.is_writing());
    EXPECT_TRUE(saved(written.path) == expected);
  }
  EXPECT_EQ(writer_.store().list().size(), 2U);
}

TEST_F(BackgroundCheckpoints, AreNotWaitedForWhileNothingIsAsked) {
  writer_.start(contents(1), {});
  EXPECT_FALSE(writer_.is_done()) << "nothing was read yet";
  EXPECT_THROW(writer_.start(contents(2), {}), Error);
  EXPECT_THROW(writer_.store(), Error);
  gate_.open(true);
  while (!writer_.is_done()) std::this_thread::yield();
  EXPECT_EQ(writer_.finish().path, run_ / "checkpoints" / "step-1");
  EXPECT_THROW(writer_.finish(), Error);
  writer_.wait_until_read();  // there is nothing to wait for
}

TEST_F(BackgroundCheckpoints, ThatFailLetTrainingGoOn) {
  gate_.open(true);
  for (const char* where : {"checkpoint.space=enospc", "checkpoint.read=enomem@3", "checkpoint.all_read=eio",
                            "file.fsync=eio@2"}) {
    SCOPED_TRACE(where);
    set_failpoints(where);
    writer_.start(contents(1), {});
    writer_.wait_until_read();
    EXPECT_THROW(writer_.finish(), Error);
    EXPECT_TRUE(writer_.store().list().empty());
  }
  set_failpoints("");
  writer_.start(contents(1), {});
  EXPECT_TRUE(saved(writer_.finish().path) == weights_);
}

TEST_F(BackgroundCheckpoints, AreWrittenHereWhereThereIsNoThread) {
  gate_.open(true);
  set_failpoints("checkpoint.thread=enomem");
  writer_.start(contents(1), {});
  EXPECT_TRUE(writer_.is_done());
  const WrittenCheckpoint written = writer_.finish();
  ASSERT_EQ(written.warnings.size(), 1U);
  EXPECT_NE(written.warnings[0].find("no thread"), std::string::npos);
  EXPECT_TRUE(saved(written.path) == weights_);
}

TEST_F(BackgroundCheckpoints, AreWaitedForInTheEnd) {
  gate_.open(true);
  {
    CheckpointWriter writer(CheckpointStore(run_ / "other", 2));
    set_failpoints("checkpoint.read=slow");
    writer.start(contents(1), {});
  }
  EXPECT_TRUE(saved(run_ / "other" / "step-1") == weights_);
}

}  // namespace
}  // namespace tetrad
