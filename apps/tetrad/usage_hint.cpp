// SPDX-License-Identifier: Apache-2.0
#include "usage_hint.h"

#include <fmt/format.h>

#include <vector>

#include "tetrad/config/scalar.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad::app {
namespace {

/// The innermost command that was recognised.
const CLI::App& reached(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
                                         : full_name(*command.get_parent()) + " " + command.get_name();
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

std::string usage_hint(const CLI::App& app) {
  const CLI::App& command = reached(app);
  const std::string name = full_name(command);
  const std::vector<std::string> commands = command_names(command);
  for (const std::string& word : app.remaining(true)) {
    const bool is_option = word.starts_with("--") && word.size() > 2;
    if (!is_option && (commands.empty() || word.starts_with('-'))) continue;
    const std::string said = word.substr(0, word.find('='));
    return fmt::format("there is no {} {} of {}{}; {} --help lists them", is_option ? "option" : "command",
                       quoted_name(said), name,
                       config::nearest_hint(said, is_option ? option_names(command) : commands), name);
  }
  return "";
}

}  // namespace tetrad::app
