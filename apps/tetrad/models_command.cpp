// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "tetrad/backend/memory.h"
#include "tetrad/io/json_text.h"
#include "tetrad/model/estimate.h"
#include "tetrad/model/presets.h"
#include "tetrad/recipe/recipe.h"

namespace tetrad::app {
namespace {

/// What memory is told for: one sequence of so many tokens at a time, in NVFP4 on a GPU.
constexpr std::int64_t kTokens = 1024;

std::string family_of_pattern(const std::string& pattern) {
  return pattern.find('M') == std::string::npos ? "Llama" : "Mamba-2 hybrid";
}

double training_memory(const ModelConfig& model) {
  const Recipe recipe(PrecisionConfig{}, model.blocks());
  return estimate_memory(model, recipe, {.batch = 1, .sequence = kTokens}, memory_traits("cuda")).total();
}

std::string parameters_text(std::int64_t count) {
  const auto number = static_cast<double>(count);
  return count < 1'000'000'000 ? fmt::format("{:.1f}M", number / 1e6) : fmt::format("{:.1f}B", number / 1e9);
}

void list_models(bool json) {
  nlohmann::json list = nlohmann::json::array();
  if (!json)
    fmt::print("{:<18} {:<15} {:>10} {:>7} {:>7} {:>7} {:>12}\n", "name", "family", "parameters", "blocks",
               "hidden", "vocab", "to train");
  for (const ModelConfig& model : presets()) {
    const std::string family = family_of_pattern(model.pattern);
    const std::int64_t parameters = parameter_count(model);
    const double memory = training_memory(model);
    list.push_back({{"name", model.name},
                    {"family", family},
                    {"parameters", parameters},
                    {"blocks", model.blocks()},
                    {"hidden", model.hidden},
                    {"vocab", model.vocab},
                    {"training_bytes", static_cast<std::int64_t>(memory)}});
    if (!json)
      fmt::print("{:<18} {:<15} {:>10} {:>7} {:>7} {:>7} {:>9.2f} GB\n", model.name, family,
                 parameters_text(parameters), model.blocks(), model.hidden, model.vocab, memory / 1e9);
  }
  if (json)
    fmt::print("{}\n", json_text(nlohmann::json{{"models", list}, {"tokens", kTokens}}, 2));
  else
    fmt::print(
        "\nTo train: memory in NVFP4 on a GPU with {} tokens at a time; tetrad train --dry-run tells it for "
        "any configuration.\nUse one with model: NAME, and change what is different: model: {{preset: NAME, "
        "vocab: 8192}}.\n",
        kTokens);
}

}  // namespace

void add_models(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("models", "List the presets of models: family, parameters, memory to train them");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object instead of text");
  set_examples(*command, "  tetrad models\n  tetrad models --json | jq '.models[].name'");
  command->callback([&action, json] {
    action = [json] {
      list_models(*json);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
