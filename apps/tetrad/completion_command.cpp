// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <string_view>

#include "command.h"
#include "command_tree.h"

namespace tetrad::app {
namespace {

using Tree = std::vector<CommandHelp>;

/// In single quotes, as all three shells read them.
std::string quote(std::string_view text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += fish ? "\\'" : "'\\''";
    else if (c == '\\' && fish)
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

/// The first sentence: what fits beside a name.
std::string summary(const std::string& description) {
  const std::size_t end = description.find(". ");
  std::string text = description.substr(0, end);
  if (end == std::string::npos && text.ends_with('.')) text.pop_back();
  return text;
}

/// The paths of all subcommands, quoted and separated: a shell finds the one that was typed by trying each
/// word.
std::string paths(const Tree& tree, std::string_view separator, bool fish = false) {
  std::string out;
  for (const CommandHelp& command : tree)
    if (!command.path.empty()) out += (out.empty() ? "" : std::string(separator)) + quote(command.path, fish);
  return out;
}

/// What may follow a command: its subcommands and the choices of its positional arguments.
std::vector<std::string> words_after(const CommandHelp& command) {
  std::vector<std::string> words = command.subcommands;
  for (const OptionHelp& positional : command.positionals)
    words.insert(words.end(), positional.choices.begin(), positional.choices.end());
  return words;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// Cases "COMMAND,OPTION" for the options that take a value: one of its choices, or else a file.
std::string value_cases(const Tree& tree) {
  std::string out;
  for (const CommandHelp& command : tree) {
    for (const OptionHelp& option : command.options) {
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(quote(command.path + "," + name));
      out += fmt::format(
          "    {}) {} ;;\n", fmt::join(patterns, "|"),
          option.choices.empty() ? "files=1" : fmt::format("values=({})", joined(option.choices)));
    }
  }
  return out;
}

std::string bash(const Tree& tree) {
  std::string cases;
  for (const CommandHelp& command : tree) {
    std::vector<std::string> options;
    for (const OptionHelp& option : command.options)
      options.insert(options.end(), option.names.begin(), option.names.end());
    cases += fmt::format("    {}) options={} words={} ;;\n", quote(command.path), quote(joined(options)),
                         quote(joined(words_after(command))));
  }
  return fmt::format(R"(# bash completion for tetrad; made by: tetrad completion bash
_tetrad() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command='' word options='' words='' files=''
  local -a values=()
  if [[ $cur == '=' ]]; then cur=''; elif [[ $prev == '=' ]]; then prev=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
    case "${{command:+$command }}$word" in
      {}) command="${{command:+$command }}$word" ;;
    esac
  done
  COMPREPLY=()
  case "$command,$prev" in
{}  esac
  case "$command" in
{}  esac
  if [[ -n $files ]]; then return; fi
  if (( ${{#values[@]}} )); then
    words=${{values[*]}}
  elif [[ $cur == -* ]]; then
    words=$options
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -o default -F _tetrad tetrad
)",
                     paths(tree, "|"), value_cases(tree), cases);
}

/// "name:description" as _describe reads it.
std::string zsh_item(std::string_view name, const std::string& description) {
  return quote(fmt::format("{}:{}", name, summary(description)));
}

std::string zsh(const Tree& tree) {
  std::string cases;
  for (const CommandHelp& command : tree) {
    std::string options;
    std::string words;
    for (const OptionHelp& option : command.options)
      for (const std::string& name : option.names)
        options.append(" ").append(zsh_item(name, option.description));
    for (const std::string& name : command.subcommands)
      for (const CommandHelp& one : tree)
        if (one.path == (command.path.empty() ? name : command.path + " " + name))
          words.append(" ").append(zsh_item(name, one.description));
    for (const OptionHelp& positional : command.positionals)
      for (const std::string& choice : positional.choices) words.append(" ").append(quote(choice));
    cases += fmt::format("    {}) options=({} ) words_after=({} ) ;;\n", quote(command.path), options, words);
  }
  return fmt::format(R"(#compdef tetrad
# zsh completion for tetrad; made by: tetrad completion zsh
_tetrad() {{
  local command='' word prev=${{words[CURRENT-1]}} files=''
  local -a options words_after values
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "${{command:+$command }}$word" in
      {}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command,$prev" in
{}  esac
  case "$command" in
{}  esac
  if [[ -n $files ]]; then _files; return; fi
  if (( $#values )); then _describe value values; return; fi
  if [[ ${{words[CURRENT]}} == -* ]]; then _describe option options; return; fi
  if (( $#words_after )); then _describe command words_after; else _files; fi
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _tetrad "$@"; else compdef _tetrad tetrad; fi
)",
                     paths(tree, "|"), value_cases(tree), cases);
}

std::string fish(const Tree& tree) {
  std::string lines;
  for (const CommandHelp& command : tree) {
    const std::string at = fmt::format(
        "complete -c tetrad -n {}",
        quote(command.path.empty() ? "__tetrad_at" : "__tetrad_at " + quote(command.path, true), true));
    for (const std::string& name : command.subcommands)
      for (const CommandHelp& one : tree)
        if (one.path == (command.path.empty() ? name : command.path + " " + name))
          lines += fmt::format("{} -f -a {} -d {}\n", at, name, quote(summary(one.description), true));
    for (const OptionHelp& positional : command.positionals)
      if (!positional.choices.empty())
        lines += fmt::format("{} -f -a {}\n", at, quote(joined(positional.choices), true));
    for (const OptionHelp& option : command.options) {
      lines += at;
      for (const std::string& name : option.names)
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        lines += " -x -a " + quote(joined(option.choices), true);
      else if (!option.value.empty())
        lines += " -r";
      lines += fmt::format(" -d {}\n", quote(summary(option.description), true));
    }
  }
  return fmt::format(R"(# fish completion for tetrad; made by: tetrad completion fish
function __tetrad_at
    set -l path
    set -l typed (commandline -opc)
    for word in $typed[2..]
        if contains -- (string join -- ' ' $path $word) {}
            set -a path $word
        end
    end
    test "$path" = "$argv"
end
{})",
                     paths(tree, " ", true), lines);
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("SHELL", *shell, "Which shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  set_examples(*command,
               "  source <(tetrad completion bash)\n"
               "  tetrad completion zsh > ~/.zfunc/_tetrad\n"
               "  tetrad completion fish > ~/.config/fish/completions/tetrad.fish");
  command->callback([&app, &action, shell] {
    action = [&app, shell] {
      const Tree tree = command_tree(app);
      fmt::print("{}", *shell == "bash" ? bash(tree) : *shell == "zsh" ? zsh(tree) : fish(tree));
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
