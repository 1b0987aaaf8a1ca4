// SPDX-License-Identifier: Apache-2.0
// The man page and the completions: they must know every command and option that --help knows.

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <sstream>

#include "support/process.h"

namespace tetrad::testing {
namespace {

struct Help {
  std::vector<std::string> path;
  std::vector<std::string> options;  //!< long names
};

/// The commands and options of the program, as a person finds them: by following --help.
void collect(const std::vector<std::string>& path, std::vector<Help>& all) {
  std::vector<std::string> arguments = path;
  arguments.emplace_back("--help");
  std::istringstream text(run_tetrad(arguments).out);
  Help help{path, {}};
  std::vector<std::string> subcommands;
  static const std::regex option("^  (?:-[a-z],)?--([a-z0-9-]+).*");
  static const std::regex subcommand("^  ([a-z]+) .*");
  bool in_subcommands = false;
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(' ')) in_subcommands = line == "Subcommands:";
    if (std::regex_match(line, match, option)) help.options.push_back("--" + match[1].str());
    if (in_subcommands && std::regex_match(line, match, subcommand)) subcommands.push_back(match[1]);
  }
  all.push_back(help);
  for (const std::string& name : subcommands) {
    std::vector<std::string> below = path;
    below.push_back(name);
    collect(below, all);
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

class GeneratedHelp : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { collect({}, all()); }
  static std::vector<Help>& all() {
    static std::vector<Help> commands;
    return commands;
  }

  /// What the shell prints for a script that can use the completion in the file $1.
  static std::string run(const std::string& shell, const std::string& script) {
    const TemporaryFolder folder;
    write_file(folder.file("completion"), run_tetrad({"completion", shell}).out);
    write_file(folder.file("script"), script);
    const std::string command = shell + " " + folder.file("script") + " " + folder.file("completion") + " >" +
                                folder.file("out") + " 2>&1";
    const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
    return status == 0 ? read_file(folder.file("out")) : "failed: " + read_file(folder.file("out"));
  }

  static bool has(const std::string& shell) {
    const std::string command = "command -v " + shell + " >/dev/null";
    return std::system(command.c_str()) == 0;  // NOLINT(concurrency-mt-unsafe)
  }
};

TEST_F(GeneratedHelp, TheManPageHasEveryCommandAndOption) {
  ASSERT_GT(all().size(), 25U);
  const Outcome man = run_tetrad({"man"});
  ASSERT_EQ(man.exit_code, 0) << man.err;
  for (const Help& help : all()) {
    // From the command's heading to the next.
    const std::string heading =
        help.path.empty() ? ".SH OPTIONS\n" : ".SS tetrad " + joined(help.path) + "\n";
    const std::size_t begin = man.out.find(heading);
    ASSERT_NE(begin, std::string::npos) << heading;
    const std::string section = man.out.substr(begin, man.out.find("\n.S", begin + 1) - begin);
    for (const std::string& option : help.options) {
      if (option == "--help" && !help.path.empty()) continue;
      EXPECT_NE(section.find(std::regex_replace(option, std::regex("-"), "\\-")), std::string::npos)
          << heading << option;
    }
  }
}

TEST_F(GeneratedHelp, BashCompletesCommandsOptionsAndValues) {
  if (!has("bash")) GTEST_SKIP() << "no bash";
  std::string script = R"(source "$1"
try() { COMP_WORDS=(tetrad "$@"); COMP_CWORD=$#; _tetrad; printf '%s:' "$*"; printf ' %s' "${COMPREPLY[@]}"; echo; }
try quantize --format ''
try quantize --format = mx
try quantize --output ''
try completion ''
)";
  for (const Help& help : all()) script += "try " + joined(help.path) + " --\n";
  const std::string out = run("bash", script);
  EXPECT_NE(out.find("quantize --format : nvfp4 mxfp4 fp8\n"), std::string::npos) << out;
  EXPECT_NE(out.find("quantize --format = mx: mxfp4\n"), std::string::npos) << out;
  EXPECT_NE(out.find("quantize --output : \n"), std::string::npos) << "left to the shell: files\n" << out;
  EXPECT_NE(out.find("completion : bash zsh fish\n"), std::string::npos) << out;
  for (const Help& help : all()) {
    const std::string begin = joined(help.path) + (help.path.empty() ? "--:" : " --:");
    EXPECT_NE(("\n" + out).find("\n" + begin + " " + joined(help.options) + "\n"), std::string::npos)
        << begin << " " << joined(help.options) << "\nin\n"
        << out;
  }
}

TEST_F(GeneratedHelp, ZshReadsItsCompletion) {
  if (!has("zsh")) GTEST_SKIP() << "no zsh";
  EXPECT_EQ(run("zsh", "zsh -n \"$1\" && echo fine"), "fine\n");
}

TEST_F(GeneratedHelp, FishCompletesCommandsAndValues) {
  if (!has("fish")) GTEST_SKIP() << "no fish";
  const std::string out = run("fish", "source $argv[1]\ncomplete -C 'tetrad quantize --format '");
  EXPECT_EQ(std::regex_replace(out, std::regex("\t.*"), ""), "fp8\nmxfp4\nnvfp4\n");
}

}  // namespace
}  // namespace tetrad::testing
