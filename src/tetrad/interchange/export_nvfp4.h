// SPDX-License-Identifier: Apache-2.0
#pragma once
// NVFP4 checkpoints for serving: ModelOpt's layout and that of compressed-tensors.

#include <filesystem>
#include <map>
#include <string>

#include "tetrad/interchange/export.h"
#include "tetrad/interchange/nvfp4_plan.h"
#include "tetrad/interchange/serving_names.h"

namespace tetrad {

/// Largest |x| that each linear layer was given, by its name (calibration.h).
using InputAmax = std::map<std::string, float, std::less<>>;

/// The weights as the forward pass has them; `cpu` makes their codes. What the plan leaves out is written as
/// options.dtype, and listed as excluded. Throws Error (failure) if a layer of the plan has no input amax.
ExportSummary export_nvfp4(const ExportSource& source, const std::filesystem::path& out,
                           const ExportOptions& options, ServingFormat format, const Nvfp4Plan& plan,
                           const InputAmax& input_amax, Backend& cpu);

}  // namespace tetrad
