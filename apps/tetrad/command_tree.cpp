// SPDX-License-Identifier: Apache-2.0
#include "command_tree.h"

namespace tetrad::app {
namespace {

/// CLI11 writes "TEXT:{nvfp4,mxfp4}" for a value with choices and "INT:INT in [1 - 9]" for one with a range.
std::vector<std::string> choices_in(const std::string& type) {
  const std::size_t open = type.find('{');
  const std::size_t close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionHelp describe(const CLI::Option& option) {
  OptionHelp help;
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  if (help.names.empty()) help.names.push_back(option.get_name());
  if (option.get_type_size_max() > 0) {
    const std::string type = option.get_type_name();
    help.value = type.substr(0, type.find(':'));
    help.choices = choices_in(type);
    help.default_value = option.get_default_str();
  }
  help.description = option.get_description();
  help.required = option.get_required();
  help.repeated = option.get_items_expected_max() > 1;
  return help;
}

void append(const CLI::App& app, const std::string& path, std::vector<CommandHelp>& tree) {
  CommandHelp help;
  help.path = path;
  help.description = app.get_description();
  help.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? help.positionals : help.options).push_back(describe(*option));
  }
  const std::vector<const CLI::App*> subcommands =
      app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
  for (const CLI::App* one : subcommands) help.subcommands.push_back(one->get_name());
  tree.push_back(std::move(help));
  for (const CLI::App* one : subcommands)
    append(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), tree);
}

}  // namespace

std::vector<CommandHelp> command_tree(const CLI::App& app) {
  std::vector<CommandHelp> tree;
  append(app, "", tree);
  return tree;
}

}  // namespace tetrad::app
