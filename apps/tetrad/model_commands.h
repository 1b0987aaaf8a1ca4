// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the commands that use a checkpoint have in common.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tetrad/eval/loaded_model.h"

namespace tetrad::app {

struct CheckpointOptions {
  std::string checkpoint;
  std::string backend = "auto";
  int threads = 0;
};

/// CHECKPOINT, --backend and --threads.
void add_checkpoint_options(CLI::App& command, CheckpointOptions& options);

struct ModelOptions : CheckpointOptions {
  std::string precision = "trained";
};

/// CHECKPOINT, --precision, --backend and --threads.
void add_model_options(CLI::App& command, ModelOptions& options);

std::unique_ptr<Backend> choose_backend(const CheckpointOptions& options);

LoadedModel load_model(const ModelOptions& options, Backend& backend, std::int64_t batch = 1,
                       std::int64_t sequence = 0);

}  // namespace tetrad::app
