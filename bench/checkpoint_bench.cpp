// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "benchmarks.h"
#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/core/error.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/model/decoder.h"
#include "tetrad/optim/adamw_optimizer.h"

namespace tetrad::bench {
namespace {

namespace fs = std::filesystem;

/// A folder that was not there before and goes again.
class Folder {
 public:
  explicit Folder(const fs::path& parent) {
    std::string name = (parent / "tetrad-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) fail_errno("no folder can be made in " + parent.string());
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// So many bytes into one file, safe on the disk.
double seconds_to_write(const fs::path& file, std::uint64_t bytes) {
  const std::vector<std::byte> piece(std::size_t{1} << 20, std::byte{0x5A});
  const auto begin = std::chrono::steady_clock::now();
  AtomicFile target(file);
  for (std::uint64_t done = 0; done < bytes; done += piece.size())
    target.append(std::span(piece).first(std::min<std::uint64_t>(piece.size(), bytes - done)));
  target.commit();
  const double seconds = seconds_since(begin);
  fs::remove(file);
  return seconds;
}

/// All bytes of a checkpoint's files, from wherever the system has them.
double seconds_to_read(const fs::path& checkpoint) {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const auto [file, size] = open_regular_file(entry.path());
    while (::read(file.get(), piece.data(), piece.size()) > 0) {
    }
  }
  return seconds_since(begin);
}

}  // namespace

void checkpoint(Backend& backend, const Config& config, const fs::path& parent, int repeats,
                const Report& report) {
  Decoder decoder(backend, config.model, 1, config.train.sequence, DType::bf16,
                  {.recompute = Recompute::full});
  decoder.initialize(1);
  AdamWOptimizer optimizer(backend, decoder.parameters(), config.optim);
  const Folder folder(parent);
  CheckpointStore store(folder.path() / "checkpoints", 2);
  std::vector<double> reading, writing, plain, loading, plain_reading;
  double gb = 0;
  for (int i = 0; i < repeats; ++i) {
    RunState state;
    state.step = i + 1;
    const CheckpointContents contents =
        make_snapshot(decoder, optimizer, state, {.config = "{}", .tokenizer = {}});
    const auto begin = std::chrono::steady_clock::now();
    const WrittenCheckpoint written =
        store.write(contents, {}, [&] { reading.push_back(seconds_since(begin)); });
    writing.push_back(seconds_since(begin));
    plain.push_back(seconds_to_write(folder.path() / "plain", written.bytes));
    std::vector<CheckpointProblem> problems;
    const auto begin_loading = std::chrono::steady_clock::now();
    const OpenCheckpoint whole = open_checkpoint(written.path, problems);
    load_snapshot(whole.path(), decoder, optimizer);
    backend.synchronize();
    loading.push_back(seconds_since(begin_loading));
    plain_reading.push_back(seconds_to_read(written.path));
    gb = 1e-9 * static_cast<double>(written.bytes);
  }
  report({"written, read back and published", "GB/s", gb / median(writing), gb / median(plain),
          "one file of that size, made safe"});
  report({"of this, training waits at most", "s", median(reading), median(writing), "the whole"});
  report({"found to be whole, and loaded", "GB/s", gb / median(loading), gb / median(plain_reading),
          "reading the files once"});
}

}  // namespace tetrad::bench
