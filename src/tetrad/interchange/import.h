// SPDX-License-Identifier: Apache-2.0
#pragma once
// Imports a model as a checkpoint of ours, for eval, score, generate, export and further training.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/output_folder.h"

namespace tetrad {

struct ImportOptions {
  std::string build = {};  //!< id of this program
  Overwrite overwrite = Overwrite::no;
  Progress progress = {};  //!< in parameters
};

struct ImportSummary {
  std::string model;  //!< its name
  std::int64_t parameters = 0;
  std::string tokenizer;              //!< what it is; empty: none
  std::vector<std::string> warnings;  //!< for people
};

/// `from` is a Hugging Face folder (config.json, safetensors, tokenizer.json if there is one), whose weights
/// may be BF16, F16, F32 or NVFP4 as ModelOpt and compressed-tensors store it; or a GGUF file. Writes a
/// folder with all that a checkpoint has but the optimizer's state. Throws Error (bad input) that says what
/// does not fit.
ImportSummary import_checkpoint(Threads& threads, const std::filesystem::path& from,
                                const std::filesystem::path& out, const ImportOptions& options);

}  // namespace tetrad
