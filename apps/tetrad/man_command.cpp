// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "command.h"
#include "command_tree.h"
#include "version.h"

namespace tetrad::app {
namespace {

/// A text as roff takes it literally: backslashes and hyphens escaped, no control character at a line's
/// begin.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

std::string value_text(const OptionHelp& option) {
  return option.choices.empty() ? option.value : fmt::format("{}", fmt::join(option.choices, "|"));
}

/// .TP, the option in bold with its value in italics, and what it means.
std::string entry(const OptionHelp& option, bool positional) {
  std::string text = fmt::format(".TP\n\\fB{}\\fR", roff(fmt::format("{}", fmt::join(option.names, ", "))));
  if (!positional && !option.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(value_text(option)));
  text += "\n" + roff(option.description);
  if (positional && !option.choices.empty()) text += roff(fmt::format(": {}", value_text(option)));
  if (!option.default_value.empty()) text += roff(fmt::format(" (default: {})", option.default_value));
  if (option.required && !positional) text += " (required)";
  return text + "\n";
}

std::string synopsis(const CommandHelp& command) {
  std::string text = fmt::format("\\fBtetrad{}{}\\fR", command.path.empty() ? "" : " ", roff(command.path));
  if (!command.options.empty()) text += " [\\fIOPTION\\fR...]";
  if (!command.subcommands.empty()) text += " \\fICOMMAND\\fR";
  for (const OptionHelp& positional : command.positionals) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(positional.names[0]), positional.repeated ? "..." : "");
    text += positional.required ? " " + name : " [" + name + "]";
  }
  return text + "\n";
}

std::string entries(const CommandHelp& command) {
  std::string text;
  for (const OptionHelp& positional : command.positionals) text += entry(positional, true);
  for (const OptionHelp& option : command.options)
    if (command.path.empty() || option.names.back() != "--help") text += entry(option, false);
  return text;
}

/// Lines as they are: examples and tables.
std::string literal(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  return fmt::format(".nf\n{}\n.fi\n", roff(text));
}

std::string man_page(const std::vector<CommandHelp>& tree) {
  const CommandHelp& program = tree.front();
  std::string page = fmt::format(
      ".TH TETRAD 1 \"\" \"tetrad {}\" \"User Commands\"\n"
      ".SH NAME\ntetrad \\- pretrain language models in NVFP4\n"
      ".SH SYNOPSIS\n{}.SH DESCRIPTION\n{}\n.SH OPTIONS\n{}.SH COMMANDS\n",
      kVersion, synopsis(program), roff(program.description), entries(program));
  for (const CommandHelp& command : tree) {
    if (command.path.empty()) continue;
    page += fmt::format(".SS tetrad {}\n{}.PP\n{}\n", roff(command.path), synopsis(command),
                        roff(command.description));
    page += entries(command);
    if (!command.footer.empty()) page += ".PP\n" + literal(command.footer);
  }
  return page + ".SH EXIT STATUS\n" + literal(program.footer);
}

}  // namespace

void add_man(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("man", "Print the manual page");
  set_examples(*command, "  tetrad man | man -l -\n  tetrad man > ~/.local/share/man/man1/tetrad.1");
  command->callback([&app, &action] {
    action = [&app] {
      fmt::print("{}", man_page(command_tree(app)));
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
