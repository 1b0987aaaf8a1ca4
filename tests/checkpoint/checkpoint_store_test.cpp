// SPDX-License-Identifier: Apache-2.0
#include "tetrad/checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <set>

#include "support/file_size_limit.h"
#include "support/files.h"
#include "tetrad/checkpoint/checkpoint_writer.h"
#include "tetrad/checkpoint/manifest.h"
#include "tetrad/core/error.h"
#include "tetrad/core/failpoint.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of;
using testing::FileSizeLimit;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

using Problems = std::vector<CheckpointProblem>;

/// What a checkpoint holds follows from `value`, so that two of the same step differ.
struct Contents {
  explicit Contents(std::int64_t step, char value)
      : weights(12, value), moments(8, static_cast<char>(value + 1)) {
    const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
    checkpoint.step = step;
    checkpoint.build = "test build";
    checkpoint.tensor_files["model.safetensors"] = {{"w", DType::f32, {3}, bytes(weights)},
                                                    {"e", DType::f32, {0, 4}, {}}};
    checkpoint.tensor_files["optimizer.safetensors"] = {{"m", DType::f32, {2}, bytes(moments)}};
    checkpoint.text_files["state.json"] = fmt::format("{{\"step\":{},\"value\":\"{}\"}}", step, value);
    checkpoint.piece_bytes = 128;  // so that also such small files have several
  }
  std::string weights;
  std::string moments;
  CheckpointContents checkpoint;
};

WrittenCheckpoint write(CheckpointStore& store, std::int64_t step, char value) {
  return store.write(Contents(step, value).checkpoint);
}

/// Whether the folder holds exactly what Contents(step, value) says.
bool holds(const fs::path& folder, std::int64_t step, char value) {
  const Contents expected(step, value);
  const auto tensor = [&](const char* file, const char* name) {
    const SafetensorsFile opened(folder / file);
    const TensorInfo* const info = opened.find(name);
    if (info == nullptr) return std::string("missing");
    const auto bytes = opened.bytes(*info);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  return tensor("model.safetensors", "w") == expected.weights &&
         tensor("optimizer.safetensors", "m") == expected.moments &&
         read_file(folder / "state.json") == expected.checkpoint.text_files.at("state.json");
}

std::vector<std::int64_t> steps(const CheckpointStore& store) {
  std::vector<std::int64_t> result;
  for (const FoundCheckpoint& found : store.list()) result.push_back(found.step);
  return result;
}

/// Entries with this in their name.
std::int64_t count_entries(const fs::path& folder, std::string_view part) {
  return std::ranges::count_if(fs::directory_iterator(folder), [&](const fs::directory_entry& entry) {
    return entry.path().filename().native().find(part) != std::string::npos;
  });
}

void expect_error(const std::function<void()>& action, ExitCode exit_code,
                  const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "no error, wanted: " << words.front();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.exit_code(), exit_code) << message;
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << word << " in: " << message;
  }
}

class Checkpoints : public ::testing::Test {
 protected:
  ~Checkpoints() override { set_failpoints(""); }

  CheckpointStore store(std::int64_t keep = 2) const { return CheckpointStore(folder(), keep); }
  fs::path folder() const { return run_ / "checkpoints"; }
  fs::path step(std::int64_t n) const { return folder() / fmt::format("step-{}", n); }

  /// Steps 1 ('a') and 2 ('b').
  void write_two() const {
    CheckpointStore writer = store();
    write(writer, 1, 'a');
    write(writer, 2, 'b');
  }

  std::optional<FoundCheckpoint> newest(Problems& problems) const { return store().newest_good(problems); }

  const TemporaryFolder run_{testing::memory_folder()};
};

// ---- Writing ----

TEST_F(Checkpoints, HoldsWhatWasWritten) {
  CheckpointStore writer = store();
  const WrittenCheckpoint written = write(writer, 5, 'x');
  EXPECT_EQ(written.path, step(5));
  EXPECT_TRUE(written.warnings.empty());
  EXPECT_GT(written.seconds, 0);
  EXPECT_TRUE(holds(written.path, 5, 'x'));
  std::uint64_t bytes = 0;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(written.path)) {
    bytes += entry.file_size();
    names.insert(entry.path().filename());
  }
  EXPECT_EQ(written.bytes, bytes);
  EXPECT_EQ(names, (std::set<std::string>{"MANIFEST.json", "model.safetensors", "optimizer.safetensors",
                                          "state.json"}));
  const Manifest manifest = parse_manifest(read_file(written.path / "MANIFEST.json"));
  EXPECT_EQ(manifest.step, 5);
  EXPECT_EQ(manifest.build, "test build");
  EXPECT_EQ(read_file(folder() / "latest"), "step-5\n");
}

/// Hands out copies, as of a device's memory, and counts what is alive of them.
class CountingReader final : public MemoryReader {
 public:
  struct Counts {
    std::atomic<std::size_t> now = 0;
    std::atomic<std::size_t> most = 0;
    std::atomic<std::size_t> all = 0;
  };
  explicit CountingReader(Counts& counts) : counts_(counts) {}

  std::span<const std::byte> read(std::span<const std::byte> memory) override {
    EXPECT_LE(memory.size(), kMostBytes);
    counts_.now -= copy_.size();
    copy_.assign(memory.begin(), memory.end());
    counts_.all += copy_.size();
    const std::size_t now = counts_.now += copy_.size();
    for (std::size_t most = counts_.most; most < now && !counts_.most.compare_exchange_weak(most, now);)
      continue;
    return copy_;
  }

 private:
  Counts& counts_;
  std::vector<std::byte> copy_;
};

/// Tensors that are larger than what is read and than what is hashed at once.
struct LargeContents {
  LargeContents() {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * 2654435761U);
    const auto bytes = std::as_bytes(std::span(values));
    checkpoint.step = 1;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      checkpoint.tensor_files[file] = {{"a", DType::u32, {1'000'003}, bytes.first(4 * 1'000'003)},
                                       {"b", DType::u32, {1}, bytes.first(4)},
                                       {"c", DType::u32, {2'000'000}, bytes.last(4 * 2'000'000)}};
    checkpoint.piece_bytes = 3'000'001;
  }
  std::vector<std::uint32_t> values = std::vector<std::uint32_t>(2'500'000);
  CheckpointContents checkpoint;
};

TEST_F(Checkpoints, AreReadALittleAtATime) {
  CheckpointStore writer = store();
  LargeContents contents;
  CountingReader::Counts counts;
  for (int i = 0; i < kHashThreads; ++i)
    contents.checkpoint.readers.push_back(std::make_unique<CountingReader>(counts));
  writer.write(contents.checkpoint);
  EXPECT_LE(counts.most, kHashThreads * MemoryReader::kMostBytes);
  EXPECT_EQ(counts.all, 2U * 4 * 3'000'004) << "each byte once";
  const SafetensorsFile file(step(1) / "optimizer.safetensors");
  for (const NamedTensor& tensor : contents.checkpoint.tensor_files.at("optimizer.safetensors"))
    EXPECT_TRUE(std::ranges::equal(file.bytes(*file.find(tensor.name)), tensor.bytes)) << tensor.name;
}

TEST_F(Checkpoints, HashesAreThoseOfThePieces) {
  CheckpointStore writer = store();
  const LargeContents contents;
  writer.write(contents.checkpoint);
  const std::size_t piece = contents.checkpoint.piece_bytes;
  const Manifest manifest = parse_manifest(read_file(step(1) / "MANIFEST.json"));
  EXPECT_EQ(manifest.piece_bytes, piece);
  for (const ManifestFile& file : manifest.files) {
    const std::string text = read_file(step(1) / file.name);
    ASSERT_EQ(file.sha256.size(), (text.size() + piece - 1) / piece);
    ASSERT_GT(file.sha256.size(), 3U);
    for (std::size_t i = 0; i < file.sha256.size(); ++i)
      EXPECT_EQ(file.sha256[i], sha256_hex(bytes_of(text.substr(i * piece, piece))));
    // A byte of the last piece, which another thread reads.
    std::string bad = text;
    bad.back() = static_cast<char>(~bad.back());
    write_file(step(1) / file.name, bad);
    Problems problems;
    expect_error([&] { open_checkpoint(step(1), problems); }, ExitCode::no_checkpoint,
                 {file.name, "damaged"});
    write_file(step(1) / file.name, text);
  }
}

/// In the middle of a large tensor, on whatever thread.
TEST_F(Checkpoints, TensorsThatCannotBeReadLeaveThePreviousOne) {
  write_two();
  CheckpointStore writer = store();
  for (const char* action : {"enomem", "eio"})
    for (const int nth : {1, 7, 20}) {
      LargeContents contents;
      contents.checkpoint.step = 3;
      set_failpoints(fmt::format("checkpoint.read={}@{}", action, nth));
      expect_error([&] { writer.write(contents.checkpoint); }, ExitCode::failure,
                   {"cannot read the tensor", step(2).native(), "is intact"});
      EXPECT_EQ(count_entries(folder(), ".tmp."), 0);
    }
  set_failpoints("");
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{2, 1}));
}

TEST_F(Checkpoints, OfEarlierVersionsAreRead) {
  write_two();
  Manifest manifest = parse_manifest(read_file(step(2) / "MANIFEST.json"));
  manifest.piece_bytes = 0;
  for (ManifestFile& file : manifest.files)
    file.sha256 = {sha256_hex(bytes_of(read_file(step(2) / file.name)))};
  write_file(step(2) / "MANIFEST.json", manifest_text(manifest));
  Problems problems;
  EXPECT_EQ(newest(problems)->step, 2);
  write_file(step(2) / "state.json", "{\"step\":2,\"value\":\"c\"}");
  EXPECT_EQ(newest(problems)->step, 1);
}

TEST_F(Checkpoints, KeepsTheNewest) {
  CheckpointStore writer = store(3);
  for (const std::int64_t n : {0, 9, 10, 11, 100}) write(writer, n, 'a');
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{100, 11, 10}));
  EXPECT_EQ(count_entries(folder(), "tmp"), 0);
  write(writer, 20, 'b');  // Later steps are not its to delete.
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{100, 20, 11, 10}));
  EXPECT_THROW(store(1), Error);
}

TEST_F(Checkpoints, SomeStayForGood) {
  CheckpointStore writer = store();
  const auto stays = [](std::int64_t step) { return step % 4 == 0; };
  for (std::int64_t step = 1; step <= 11; ++step) writer.write(Contents(step, 'a').checkpoint, stays);
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{11, 10, 8, 4}));
}

TEST_F(Checkpoints, OneThatIsReadIsNotDeleted) {
  CheckpointStore writer = store();
  write(writer, 1, 'a');
  Problems problems;
  {
    const OpenCheckpoint open = open_checkpoint(folder(), problems);
    for (std::int64_t step = 2; step <= 5; ++step) write(writer, step, 'b');
    EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{5, 4, 1}));
    EXPECT_TRUE(holds(open.path(), 1, 'a'));
  }
  write(writer, 6, 'b');
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{6, 5})) << "nobody reads it any more";
}

TEST_F(Checkpoints, OneThatTheDiskFailsToReadStaysWhereItIs) {
  CheckpointStore writer = store();
  write(writer, 1, 'a');
  write(writer, 2, 'b');
  Problems problems;
  set_failpoints("checkpoint.verify=eio@1");
  expect_error([&] { writer.newest_good(problems); }, ExitCode::failure, {"step-2", "try again"});
  set_failpoints("");
  EXPECT_EQ(writer.newest_good(problems)->step, 2);
  EXPECT_TRUE(problems.empty());
}

TEST_F(Checkpoints, FindsTheNewestUpToAStep) {
  CheckpointStore writer = store(3);
  for (const std::int64_t step : {3, 6, 8}) write(writer, step, 'a');
  Problems problems;
  EXPECT_EQ(writer.newest_good(problems, 7)->step, 6);
  EXPECT_EQ(writer.newest_good(problems, 6)->step, 6);
  EXPECT_EQ(writer.newest_good(problems)->step, 8);
}

TEST_F(Checkpoints, IncompleteOnesAreNeitherCountedNorDeleted) {
  write_two();
  fs::remove(step(1) / "state.json");
  CheckpointStore writer = store();
  write(writer, 3, 'c');
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{3, 2, 1}));
  write(writer, 4, 'd');
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{4, 3, 1}));
}

TEST_F(Checkpoints, ReplacesOneOfTheSameStep) {
  write_two();
  CheckpointStore writer = store();
  write(writer, 2, 'z');
  EXPECT_TRUE(holds(step(2), 2, 'z'));
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(count_entries(folder(), ".old."), 0);
}

TEST_F(Checkpoints, RefusesContentsThatCannotBe) {
  CheckpointStore writer = store();
  const auto refuse = [&](const std::function<void(CheckpointContents&)>& change) {
    Contents contents(1, 'a');
    change(contents.checkpoint);
    expect_error([&] { writer.write(contents.checkpoint); }, ExitCode::failure, {"bug of the caller"});
  };
  refuse([](CheckpointContents& c) { c.step = -1; });
  refuse([](CheckpointContents& c) { c.text_files["../escape"] = ""; });
  refuse([](CheckpointContents& c) { c.text_files["MANIFEST.json"] = ""; });
  refuse([](CheckpointContents& c) { c.text_files["model.safetensors"] = ""; });
  refuse([](CheckpointContents& c) { c.build = std::string(1, '\xFF'); });
  refuse([](CheckpointContents& c) {
    c.tensor_files.clear();
    c.text_files.clear();
  });
  refuse([](CheckpointContents& c) { c.tensor_files["model.safetensors"][0].shape = {4}; });
  EXPECT_TRUE(writer.list().empty());
}

TEST_F(Checkpoints, OneWriterAtATime) {
  CheckpointStore first = store();
  write(first, 1, 'a');
  CheckpointStore second = store();
  expect_error([&] { write(second, 2, 'b'); }, ExitCode::failure, {"another process"});
  Problems problems;
  expect_error([&] { second.newest_good(problems); }, ExitCode::bad_input, {"another process"});
  write(first, 2, 'b');
}

// ---- Killed, or a call that fails, anywhere in the protocol ----

struct Scenario {
  std::int64_t step;      //!< written over the steps 1 ('a') and 2 ('b')
  bool is_in_background;  //!< by a CheckpointWriter
  std::string missing;    //!< failpoints of the protocol that it does not reach
};

WrittenCheckpoint write(CheckpointStore store, const Scenario& scenario) {
  Contents contents(scenario.step, 'n');
  if (!scenario.is_in_background) return store.write(contents.checkpoint);
  CheckpointWriter writer(std::move(store));
  writer.start(std::move(contents.checkpoint), {});
  return writer.finish();
}

/// Writes in a child process with this failpoint armed. The child's exit code, or minus its signal:
/// 0 written, 1 Error (failure), 2 written with warnings, 3 the failpoint was not reached, 4 anything else.
int write_in_child(const fs::path& folder, const Scenario& scenario, const std::string& name,
                   const std::string& action, int nth) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 4;
    try {
      CheckpointStore store(folder, 2);
      set_failpoints(fmt::format("{}={}@{}", name, action, nth));
      code = write(std::move(store), scenario).warnings.empty() ? 0 : 2;
      if (failpoint_hits(name) < nth) code = 3;
    } catch (const Error& error) {
      const bool says_so = std::string_view(error.what()).find("is intact") != std::string_view::npos;
      if (error.exit_code() == ExitCode::failure && says_so) code = 1;
    } catch (...) {
      code = 4;
    }
    ::_exit(code);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

class CheckpointFaults : public Checkpoints, public ::testing::WithParamInterface<Scenario> {};

TEST_P(CheckpointFaults, LeaveAGoodCheckpoint) {
  const Scenario& scenario = GetParam();
  for (const std::string_view name : kFailpoints) {
    if (!name.starts_with("file.") && !name.starts_with("checkpoint.")) continue;
    for (const std::string action : {"kill", "enospc", "eio", "enomem"}) {
      int reached = 0;
      for (int nth = 1; nth < 100; ++nth) {
        SCOPED_TRACE(fmt::format("{}={}@{}", name, action, nth));
        fs::remove_all(folder());
        write_two();
        const int code = write_in_child(folder(), scenario, std::string(name), action, nth);
        if (code == 3) break;
        ++reached;
        ASSERT_TRUE(action == "kill" ? code == -SIGKILL : code == 1 || code == 2) << code;

        Problems problems;
        const auto found = newest(problems);
        ASSERT_TRUE(found);
        EXPECT_TRUE(problems.empty());
        const bool is_new = found->step == scenario.step && holds(found->path, scenario.step, 'n');
        EXPECT_TRUE(is_new || (found->step == 2 && holds(found->path, 2, 'b'))) << found->path;
        EXPECT_TRUE(is_new || code != 2);  // With warnings only, it was reported as written.

        // The next write works and cleans up.
        CheckpointStore writer = store();
        EXPECT_TRUE(write(writer, scenario.step + 1, 'm').warnings.empty());
        EXPECT_TRUE(holds(step(scenario.step + 1), scenario.step + 1, 'm'));
        EXPECT_EQ(count_entries(folder(), ".tmp."), 0);
        EXPECT_EQ(count_entries(folder(), ".old."), 0);
        EXPECT_EQ(count_entries(folder(), ".bad."), 0);
        EXPECT_EQ(steps(writer).size(), 2U);
        if (HasFailure()) return;
      }
      EXPECT_EQ(reached == 0, scenario.missing.find(name) != std::string::npos) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Store, CheckpointFaults,
                         ::testing::Values(Scenario{3, false, "checkpoint.set_aside checkpoint.thread"},
                                           Scenario{2, false, "checkpoint.retire checkpoint.thread"},
                                           Scenario{3, true, "checkpoint.set_aside"},
                                           Scenario{2, true, "checkpoint.retire"}));

TEST_F(Checkpoints, FullDiskNamesThePreviousOne) {
  expect_error(
      [&] {
        CheckpointStore writer = store();
        set_failpoints("file.write=enospc");
        write(writer, 1, 'a');
      },
      ExitCode::failure, {"step 1", "No space left", "no earlier checkpoint"});
  set_failpoints("");
  write_two();
  CheckpointStore writer = store();
  Contents big(3, 'c');
  big.weights.assign(400'000, 'c');
  big.checkpoint.tensor_files["model.safetensors"][0] = {
      "w", DType::f32, {100'000}, std::as_bytes(std::span(big.weights))};
  {
    const FileSizeLimit limit(100'000);
    expect_error([&] { writer.write(big.checkpoint); }, ExitCode::failure,
                 {"step 3", "File too large", step(2).native(), "is intact"});
  }
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(count_entries(folder(), ".tmp."), 0);
  EXPECT_TRUE(holds(step(2), 2, 'b'));
  writer.write(big.checkpoint);
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{3, 2}));
}

// ---- Damage ----

class CheckpointDamage : public Checkpoints {
 protected:
  /// Step 2 is found bad, put aside unchanged, and step 1 is taken. Then step 2 is put back.
  void expect_fallback() const {
    Problems problems;
    const auto found = newest(problems);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 1);
    EXPECT_TRUE(holds(found->path, 1, 'a'));
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].path, step(2));
    EXPECT_FALSE(problems[0].what.empty());
    EXPECT_TRUE(problems[0].moved_to.filename().native().starts_with("step-2.bad."));
    fs::rename(problems[0].moved_to, step(2));
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(step(2))) names.push_back(entry.path().filename());
    return names;
  }
};

TEST_F(CheckpointDamage, EveryTruncationIsFound) {
  write_two();
  for (const std::string& name : files()) {
    SCOPED_TRACE(name);
    const std::string good = read_file(step(2) / name);
    for (const std::size_t size : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      write_file(step(2) / name, good.substr(0, size));
      expect_fallback();
    }
    write_file(step(2) / name, good + "x");
    expect_fallback();
    fs::remove(step(2) / name);
    expect_fallback();
    fs::create_directory(step(2) / name);
    expect_fallback();
    fs::remove(step(2) / name);
    ASSERT_EQ(::mkfifo((step(2) / name).c_str(), 0600), 0);
    expect_fallback();
    fs::remove(step(2) / name);
    write_file(step(2) / name, good);
  }
  Problems problems;
  EXPECT_EQ(newest(problems)->step, 2);
  EXPECT_TRUE(problems.empty());
}

TEST_F(CheckpointDamage, OneFlippedBitAnywhereIsFound) {
  write_two();
  Problems problems;
  for (const std::string& name : files()) {
    const std::string good = read_file(step(2) / name);
    for (std::size_t at = 0; at < good.size(); ++at) {
      SCOPED_TRACE(fmt::format("{} at {}", name, at));
      std::string bad = good;
      for (unsigned bit = 0; bit < 8; ++bit) {
        bad[at] = static_cast<char>(good[at] ^ (1 << bit));
        write_file(step(2) / name, bad);
        ASSERT_THROW(open_checkpoint(step(2), problems), Error);
      }
      bad[at] = static_cast<char>(~good[at]);
      write_file(step(2) / name, bad);
      expect_fallback();
      ASSERT_EQ(read_file(step(2) / name), bad);  // Quarantine keeps it as it was.
      if (HasFailure()) return;
    }
    write_file(step(2) / name, good);
  }
  EXPECT_EQ(newest(problems)->step, 2);
}

TEST_F(CheckpointDamage, FolderOfAnotherStepIsNotTaken) {
  write_two();
  fs::rename(step(2), step(7));
  Problems problems;
  EXPECT_EQ(newest(problems)->step, 1);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].what.find("step 7"), std::string::npos);
}

TEST_F(CheckpointDamage, UnreadableFolderIsNoDamage) {
  write_two();
  fs::permissions(step(2), fs::perms::none);
  const pid_t child = ::fork();
  if (child == 0) {
    // Permissions do not hold for root, but for nobody.
    int code = 0;
    if (::geteuid() == 0) {
      for (const fs::path& path : {run_.path(), folder(), folder() / ".lock", step(1)})
        code |= ::chown(path.c_str(), 65534, 65534);
      code |= ::setuid(65534);
    }
    try {
      Problems problems;
      newest(problems);
      code |= 4;
    } catch (const Error& error) {  // it may be good: who resumes decides
      if (error.exit_code() != ExitCode::failure ||
          std::string(error.what()).find("Permission denied") == std::string::npos)
        code |= 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(step(2)));
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.is_directory()) fs::permissions(entry.path(), fs::perms::owner_all);
}

TEST_F(CheckpointDamage, NeverStartsFromScratchSilently) {
  Problems problems;
  EXPECT_FALSE(newest(problems));  // No folder.
  fs::create_directories(folder() / "step-1.tmp.1.1");
  EXPECT_FALSE(newest(problems));  // A first checkpoint that was never finished.
  write_two();
  write_file(step(1) / "state.json", "");
  write_file(step(2) / "MANIFEST.json", "");
  expect_error([&] { newest(problems); }, ExitCode::no_checkpoint,
               {"step-2", "MANIFEST.json", "step-1", "state.json has 0 bytes"});
  EXPECT_EQ(problems.size(), 2U);
  // Again: they are in quarantine now, but the run did have checkpoints.
  expect_error([&] { newest(problems); }, ExitCode::no_checkpoint, {"step-2.bad.", "step-1.bad."});
  EXPECT_EQ(problems.size(), 2U);
}

TEST_F(CheckpointDamage, NamesThatAreNotOursAreNoCheckpoints) {
  for (const std::string name :
       {"step-", "step-x", "step-01", "step--1", "step-1x", "step-99999999999999999999"}) {
    fs::remove_all(folder());
    fs::create_directories(folder() / name);
    Problems problems;
    expect_error([&] { newest(problems); }, ExitCode::no_checkpoint, {name});
    EXPECT_TRUE(fs::exists(folder() / name));
  }
}

// ---- What is left behind ----

TEST_F(Checkpoints, RemovesWhatDeadWritersLeft) {
  write_two();
  fs::copy(step(2), folder() / "step-9.tmp.1.1");
  fs::create_directories(folder() / "step-3.tmp.1.0");
  write_file(folder() / "latest.tmp.1.0", "half");
  Problems problems;
  EXPECT_EQ(newest(problems)->step, 2);
  EXPECT_EQ(count_entries(folder(), "tmp"), 0) << "also if nothing is left to be written";
  fs::create_directories(folder() / "step-3.tmp.1.0");
  CheckpointStore writer = store();
  write(writer, 3, 'c');
  EXPECT_EQ(count_entries(folder(), "tmp"), 0);
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{3, 2}));
}

TEST_F(Checkpoints, FindsTheOneThatWasBeingReplaced) {
  write_two();
  fs::rename(step(2), folder() / "step-2.old.1.1");
  Problems problems;
  EXPECT_EQ(open_checkpoint(run_.path(), problems).path(), folder() / "step-2.old.1.1");
  EXPECT_EQ(newest(problems)->path, step(2));
  EXPECT_TRUE(problems.empty());
  // And when the new one turns out bad after all.
  fs::copy(step(2), folder() / "step-2.old.1.1");
  write_file(step(2) / "state.json", "");
  EXPECT_EQ(newest(problems)->path, step(2));
  EXPECT_EQ(problems.size(), 1U);
  EXPECT_TRUE(holds(step(2), 2, 'b'));
}

TEST_F(Checkpoints, LatestIsNotTrusted) {
  write_two();
  Problems problems;
  for (const std::string_view text : {"step-1\n", "step-77\n", "../..", "", "\xFF\x00garbage"}) {
    write_file(folder() / "latest", text);
    EXPECT_EQ(newest(problems)->step, 2);
  }
  fs::remove(folder() / "latest");
  EXPECT_EQ(newest(problems)->step, 2);
  // Not even in the way: a folder of this name is only a warning.
  fs::create_directory(folder() / "latest");
  CheckpointStore writer = store();
  EXPECT_EQ(write(writer, 3, 'c').warnings.size(), 1U);
  EXPECT_EQ(steps(writer), (std::vector<std::int64_t>{3, 2}));
}

// ---- Opening one to read ----

TEST_F(Checkpoints, OpensRunsFoldersAndSingleCheckpoints) {
  write_two();
  Problems problems;
  for (const fs::path& path : {run_.path(), run_ / "", folder(), step(2), step(2) / ""})
    EXPECT_EQ(open_checkpoint(path, problems).path(), step(2)) << path;
  EXPECT_EQ(open_checkpoint(step(1), problems).path(), step(1));
  fs::copy(step(1), run_ / "renamed");
  EXPECT_EQ(open_checkpoint(run_ / "renamed", problems).path(), run_ / "renamed");
  EXPECT_TRUE(problems.empty());

  write_file(step(2) / "state.json", "x");
  EXPECT_EQ(open_checkpoint(run_.path(), problems).path(), step(1));
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, step(2));
  EXPECT_TRUE(fs::exists(step(2)));  // A reader moves nothing.
}

TEST_F(Checkpoints, OpenSaysWhatIsWrong) {
  Problems problems;
  const auto refuse = [&](const fs::path& path, const std::vector<std::string>& words) {
    expect_error([&] { open_checkpoint(path, problems); }, ExitCode::no_checkpoint, words);
  };
  refuse(run_ / "nowhere", {"not a folder", "nowhere"});
  refuse("", {"not a folder"});
  refuse(run_.path(), {"no checkpoint"});
  write_two();
  write_file(step(2) / "model.safetensors", "");
  refuse(step(2), {"step-2", "model.safetensors has 0 bytes"});
  refuse(step(2) / "state.json", {"not a folder"});
  fs::remove(step(2) / "MANIFEST.json");
  refuse(step(2), {"MANIFEST.json is missing"});
  fs::remove_all(step(1));
  refuse(run_.path(), {"no checkpoint", "MANIFEST.json is missing"});
}

}  // namespace
}  // namespace tetrad
