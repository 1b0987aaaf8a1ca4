// SPDX-License-Identifier: Apache-2.0
#pragma once
// The variants of this backend: the same sources, compiled for several instruction sets.

#include <string>
#include <vector>

namespace tetrad {

/// Names of instruction sets that this build has kernels for, the best first: "avx512-bf16", "avx512",
/// "avx2", "baseline" on x86-64, "neon-bf16", "neon" on ARM64.
struct CpuInstructionSets {
  std::vector<std::string> usable;   //!< this processor has them too
  std::vector<std::string> missing;  //!< it does not
};
CpuInstructionSets cpu_instruction_sets();

}  // namespace tetrad
