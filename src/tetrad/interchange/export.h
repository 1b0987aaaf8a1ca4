// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model of ours as a folder that other programs load.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tetrad/core/threads.h"
#include "tetrad/interchange/export_source.h"
#include "tetrad/interchange/output_folder.h"
#include "tetrad/interchange/piece_encoder.h"

namespace tetrad {

struct ExportOptions {
  DType dtype = DType::bf16;  //!< type of what is not quantized
  std::uint64_t shard_bytes = kShardBytes;
  Overwrite overwrite = Overwrite::no;
  std::string version = {};                //!< this program's, noted in the files
  Progress progress = {};                  //!< in parameters
  std::vector<std::string> warnings = {};  //!< to be noted and handed on, beside those of the format
};

struct ExportSummary {
  std::size_t tensors = 0;
  std::size_t shards = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> warnings = {};  //!< where readers will compute something else than training did
};

/// config.json, generation_config.json, weights and, if there is a tokenizer, its files. `encoder` writes
/// the weights; `quantization_config`, if it is not null, goes into config.json; `extra_files` are further
/// JSON files, by name. `warnings` are noted in the folder and handed on.
ExportSummary export_hf_folder(const ExportSource& source, const std::filesystem::path& out,
                               const ExportOptions& options, PieceEncoder& encoder,
                               const nlohmann::ordered_json& extra_files,
                               const nlohmann::ordered_json& quantization_config,
                               std::vector<std::string> warnings);

/// The plain values, for transformers.
ExportSummary export_hf(Threads& threads, const ExportSource& source, const std::filesystem::path& out,
                        const ExportOptions& options);

/// Throws Error (bad input) if `out` cannot become an export: it holds something that may not be replaced.
/// export_*() ask this themselves; it is for those who calibrate first.
void check_export_folder(const std::filesystem::path& out, Overwrite overwrite);

}  // namespace tetrad
