// SPDX-License-Identifier: Apache-2.0
#pragma once
// GGUF, for llama.cpp: one file, in NVFP4 or BF16.

#include <filesystem>

#include "tetrad/interchange/export.h"
#include "tetrad/interchange/nvfp4_plan.h"

namespace tetrad {

/// Writes `out`, a file. Layers of `plan` are NVFP4 with the codes of the forward pass, or their values in
/// F32 where a row is no multiple of 64; other matrices BF16; vectors F32. Of `options` the type of elements
/// and the size of shards do not matter.
ExportSummary export_gguf(const ExportSource& source, const std::filesystem::path& out,
                          const ExportOptions& options, const Nvfp4Plan& plan, Backend& cpu);

}  // namespace tetrad
