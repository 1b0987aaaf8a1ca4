// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which of cuBLASLt's kernels was fastest for each product, remembered from run to run: the same run on the
// same machine then uses the same kernels, and so gives the same bits. Contexts and processes share a file,
// and the first that times a product decides for all. A run has such a file in its own folder, too: it goes
// before the machine's, so that all ranks of the run, and other machines that go on with it, use the kernels
// that it began with.

#include <cublasLt.h>

#include <filesystem>
#include <functional>
#include <ios>
#include <map>
#include <optional>
#include <string>

namespace tetrad::cuda {

/// A file of choices, one per line, to which any number of processes add.
class AlgorithmFile {
 public:
  AlgorithmFile() = default;  //!< none: it keeps nothing
  explicit AlgorithmFile(std::filesystem::path path);

  /// The known algorithm for a problem, or what `choose` returns, which is called by one context at a time
  /// where the file system has locks. Where the file cannot be written, the choice holds for this context
  /// alone.
  cublasLtMatmulAlgo_t find_or_choose(const std::string& problem,
                                      const std::function<cublasLtMatmulAlgo_t()>& choose);

 private:
  std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  /// Reads what others have added since the last time.
  void read();

  std::filesystem::path path_;
  std::streamoff read_until_ = 0;
  std::map<std::string, cublasLtMatmulAlgo_t> known_;
};

class AlgorithmCache {
 public:
  /// `device` distinguishes devices and library versions: what is fastest on one need not be on another.
  explicit AlgorithmCache(const std::string& device);

  /// From now on, the choices of the run with this folder.
  void keep_in(const std::filesystem::path& folder);

  cublasLtMatmulAlgo_t find_or_choose(const std::string& problem,
                                      const std::function<cublasLtMatmulAlgo_t()>& choose);

 private:
  std::string file_name_;
  AlgorithmFile of_machine_;
  std::optional<AlgorithmFile> of_run_;
};

}  // namespace tetrad::cuda
