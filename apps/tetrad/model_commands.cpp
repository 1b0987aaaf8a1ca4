// SPDX-License-Identifier: Apache-2.0
#include "model_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "backend_choice.h"
#include "command.h"
#include "terminal.h"
#include "tetrad/recipe/config.h"

namespace tetrad::app {

void add_checkpoint_options(CLI::App& command, CheckpointOptions& options) {
  command
      .add_option("CHECKPOINT", options.checkpoint,
                  "A run's folder (its newest checkpoint) or RUN/checkpoints/step-N")
      ->required();
  add_backend_option(command, options.backend);
  add_threads_option(command, options.threads);
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_checkpoint_options(command, options);
  std::vector<std::string> precisions(kRecipeNames.begin(), kRecipeNames.end());
  precisions.insert(precisions.begin(), "trained");
  precisions.emplace_back("f32");
  command
      .add_option("--precision", options.precision,
                  fmt::format("Precision of the forward pass: trained (as at the end of training), {} or f32",
                              fmt::join(kRecipeNames, ", ")))
      ->check(CLI::IsMember(precisions))
      ->type_name("P")
      ->capture_default_str();
}

std::unique_ptr<Backend> choose_backend(const CheckpointOptions& options) {
  return choose_backend(options.backend, options.threads);
}

LoadedModel load_model(const ModelOptions& options, Backend& backend, std::int64_t batch,
                       std::int64_t sequence) {
  return LoadedModel(options.checkpoint, {options.precision, batch, sequence, &terminal()}, backend);
}

}  // namespace tetrad::app
