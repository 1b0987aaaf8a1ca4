// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which of cuBLASLt's kernels was fastest for each product, remembered from run to run: the same run on the
// same machine then uses the same kernels, and so gives the same bits. Contexts and processes share a file,
// and the first that times a product decides for all.

#include <cublasLt.h>

#include <filesystem>
#include <functional>
#include <ios>
#include <map>
#include <optional>
#include <string>

namespace tetrad::cuda {

class AlgorithmCache {
 public:
  /// `device` distinguishes devices and library versions: what is fastest on one need not be on another.
  explicit AlgorithmCache(const std::string& device);

  /// The algorithm for a problem: the known one, or what `choose` returns, which is called by one context at
  /// a time. Where the file cannot be written, the choice holds for this context alone.
  cublasLtMatmulAlgo_t find_or_choose(const std::string& problem,
                                      const std::function<cublasLtMatmulAlgo_t()>& choose);

 private:
  std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  /// Reads what others have added since the last time.
  void read();

  std::filesystem::path file_;  //!< empty: nowhere to keep it
  std::streamoff read_until_ = 0;
  std::map<std::string, cublasLtMatmulAlgo_t> known_;
};

}  // namespace tetrad::cuda
