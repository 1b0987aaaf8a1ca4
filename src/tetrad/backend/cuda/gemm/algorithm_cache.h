// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which of cuBLASLt's kernels was fastest for each product, remembered from run to run: the same run on the
// same machine then uses the same kernels, and so gives the same bits.

#include <cublasLt.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tetrad::cuda {

class AlgorithmCache {
 public:
  /// `device` tells devices and library versions apart: what is fastest on one need not be on another.
  explicit AlgorithmCache(const std::string& device);

  std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  /// Remembers it, in this process and, if the folder can be written to, beyond it.
  void add(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm);

 private:
  std::filesystem::path file_;  //!< empty: nowhere to keep it
  std::map<std::string, cublasLtMatmulAlgo_t> known_;
};

}  // namespace tetrad::cuda
