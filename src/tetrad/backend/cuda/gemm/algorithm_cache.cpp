// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/algorithm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tetrad/core/cache_folder.h"

namespace tetrad::cuda {
namespace {

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_hex(const std::string& text) {
  constexpr std::size_t kDigits = 16;
  cublasLtMatmulAlgo_t algorithm = {};
  if (text.size() != std::size(algorithm.data) * kDigits) return std::nullopt;
  for (const char c : text)
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i)
    algorithm.data[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
  return algorithm;
}

/// The right to add to a file, which other processes and other contexts of this one respect.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : file_(path.empty() ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) return;
    int result = -1;
    while ((result = flock(file_, LOCK_EX)) != 0 && errno == EINTR) {
    }
    is_held_ = result == 0;
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }

  bool is_held() const { return is_held_; }
  /// If it fails, the choice is made again in the next run.
  void append(const std::string& line) const {
    if (file_ < 0) return;
    const off_t size = lseek(file_, 0, SEEK_END);
    char last = '\n';  // another one's last line may have been left incomplete
    if (size > 0 && pread(file_, &last, 1, size - 1) != 1) return;
    const std::string text = last == '\n' ? line : "\n" + line;
    [[maybe_unused]] const ssize_t written = write(file_, text.data(), text.size());
  }

 private:
  int file_;
  bool is_held_ = false;
};

}  // namespace

AlgorithmFile::AlgorithmFile(std::filesystem::path path) : path_(std::move(path)) { read(); }

void AlgorithmFile::read() {
  std::ifstream in(path_);
  in.seekg(read_until_);
  for (std::string line;
       std::getline(in, line) && !in.eof();) {  // a last line without an end is still being written
    read_until_ = in.tellg();
    std::istringstream words(line);
    std::string problem;
    std::string algorithm;
    // A line that a crash left incomplete is as good as none.
    if (words >> problem >> algorithm)
      if (const auto known = from_hex(algorithm)) known_.try_emplace(problem, *known);
  }
}

std::optional<cublasLtMatmulAlgo_t> AlgorithmFile::find(const std::string& problem) const {
  const auto found = known_.find(problem);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

cublasLtMatmulAlgo_t AlgorithmFile::find_or_choose(const std::string& problem,
                                                   const std::function<cublasLtMatmulAlgo_t()>& choose) {
  if (const auto known = find(problem)) return *known;
  std::error_code ignored;  // without the file only time is lost
  std::filesystem::create_directories(path_.parent_path(), ignored);
  const FileLock lock(path_);
  if (lock.is_held()) {
    read();
    if (const auto known = find(problem)) return *known;
  }
  const cublasLtMatmulAlgo_t chosen = choose();
  // The first line counts: on a file system without locks somebody else may have added one meanwhile.
  lock.append(problem + " " + to_hex(chosen) + "\n");
  read();
  return known_.try_emplace(problem, chosen).first->second;
}

AlgorithmCache::AlgorithmCache(const std::string& device)
    : file_name_(cache_file_name("products-" + device)) {
  if (const std::filesystem::path folder = cache_folder(); !folder.empty())
    of_machine_ = AlgorithmFile(folder / file_name_);
}

void AlgorithmCache::keep_in(const std::filesystem::path& folder) { of_run_.emplace(folder / file_name_); }

cublasLtMatmulAlgo_t AlgorithmCache::find_or_choose(const std::string& problem,
                                                    const std::function<cublasLtMatmulAlgo_t()>& choose) {
  const auto by_machine = [&] { return of_machine_.find_or_choose(problem, choose); };
  return of_run_ ? of_run_->find_or_choose(problem, by_machine) : by_machine();
}

}  // namespace tetrad::cuda
