// SPDX-License-Identifier: Apache-2.0
#include "tetrad/backend/cuda/gemm/algorithm_cache.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace tetrad::cuda {
namespace {

/// Where programs keep what they can compute again.
std::filesystem::path cache_folder() {
  const auto from = [](const char* variable) -> std::filesystem::path {
    const char* value =
        std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment
    return value == nullptr ? "" : value;
  };
  if (auto folder = from("TETRAD_CACHE"); !folder.empty()) return folder;
  if (const auto folder = from("XDG_CACHE_HOME"); !folder.empty()) return folder / "tetrad";
  if (const auto home = from("HOME"); !home.empty()) return home / ".cache" / "tetrad";
  return {};
}

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

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& device) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return;
  std::string name = "products-" + device;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  file_ = folder / name;
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string problem;
    std::string algorithm;
    // A line that a crash left incomplete is as good as none.
    if (words >> problem >> algorithm)
      if (const auto known = from_hex(algorithm)) known_.try_emplace(problem, *known);
  }
}

std::optional<cublasLtMatmulAlgo_t> AlgorithmCache::find(const std::string& problem) const {
  const auto found = known_.find(problem);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void AlgorithmCache::add(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm) {
  if (!known_.try_emplace(problem, algorithm).second || file_.empty()) return;
  std::error_code ignored;  // without the file only time is lost
  std::filesystem::create_directories(file_.parent_path(), ignored);
  std::ofstream(file_, std::ios::app) << problem + " " + to_hex(algorithm) + "\n" << std::flush;
}

}  // namespace tetrad::cuda
