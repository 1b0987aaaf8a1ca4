// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commands and options of the program as plain data, read from the parser itself. The man page and the
// shell completions are written from it, so they cannot disagree with --help.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tetrad::app {

struct OptionHelp {
  std::vector<std::string> names;    //!< "-o", "--output"; of a positional argument, its name alone
  std::string value;                 //!< what stands for its value, such as FILE; empty for a flag
  std::vector<std::string> choices;  //!< the values that it takes, where they can be listed
  std::string default_value;
  std::string description;
  bool required = false;
  bool repeated = false;
};

struct CommandHelp {
  std::string path;  //!< "data prepare"; empty for the program itself
  std::string description;
  std::string footer;
  std::vector<OptionHelp> options;
  std::vector<OptionHelp> positionals;
  std::vector<std::string> subcommands;
};

/// The program first, then every subcommand before its own subcommands.
std::vector<CommandHelp> command_tree(const CLI::App& app);

}  // namespace tetrad::app
