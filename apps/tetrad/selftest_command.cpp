// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "backend_choice.h"
#include "command.h"
#include "progress.h"
#include "tetrad/backend/cpu/instruction_sets.h"
#include "tetrad/io/json_text.h"
#include "tetrad/selftest/selftest.h"
#include "tetrad/train/run_log.h"

namespace tetrad::app {
namespace {

struct SelftestOptions {
  std::string backend = "auto";
  int threads = 0;
  bool brief = false;
  bool json = false;
};

/// What is tested, and what it is compared with.
struct Pair {
  std::unique_ptr<Backend> tested;
  std::unique_ptr<Backend> reference;
  std::string tested_name;
  std::string reference_name;
  bool same_bytes = false;
};

/// A GPU against the CPU. Where there is none, the best instructions of the processor against the plainest
/// that the build has: they promise the same bytes everywhere.
Pair choose(const SelftestOptions& options) {
  Pair pair;
  pair.tested = choose_backend(options.backend, {.threads = options.threads, .tune = false});
  pair.tested_name = hardware_name(*pair.tested);
  if (pair.tested->name() != "cpu") {
    pair.reference = make_cpu_backend({.threads = options.threads, .instruction_set = {}});
    pair.reference_name = fmt::format("the CPU ({})", hardware_name(*pair.reference));
    return pair;
  }
  const std::vector<std::string> sets = cpu_instruction_sets().usable;
  pair.reference = make_cpu_backend({.threads = options.threads, .instruction_set = sets.back()});
  pair.tested_name += fmt::format(", {} instructions", sets.front());
  pair.reference_name = fmt::format("its {} instructions", sets.back());
  pair.same_bytes = true;
  return pair;
}

nlohmann::json to_json(const Pair& pair, const selftest::Report& report, double seconds) {
  nlohmann::json object = {{"backend", pair.tested->name()},    {"tested", pair.tested_name},
                           {"reference", pair.reference_name},  {"checks", report.checks()},
                           {"passed", report.passed()},         {"seconds", seconds},
                           {"groups", nlohmann::json::array()}, {"failures", nlohmann::json::array()}};
  for (const selftest::Group& group : report.groups)
    object["groups"].push_back({{"operation", group.operation},
                                {"checks", group.checks},
                                {"passed", group.passed},
                                {"seconds", group.seconds}});
  for (const selftest::Failure& failure : report.failures)
    object["failures"].push_back(
        {{"operation", failure.operation}, {"check", failure.check}, {"what", failure.what}});
  return object;
}

void print(const selftest::Report& report, double seconds) {
  for (const selftest::Group& group : report.groups)
    fmt::print("  {:<22} {:>5} of {:<5} {:>5.1f} s{}\n", group.operation, group.passed, group.checks,
               group.seconds, group.passed == group.checks ? "" : " FAILED");
  for (const auto& [operation, check, what] : report.failures)
    fmt::print("FAILED {}: {}: {}\n", operation, check, what);
  fmt::print("{} in {:.1f} s\n",
             report.passed() ? fmt::format("all {} checks passed", report.checks())
                             : fmt::format("{} of {} checks failed", report.failures.size(), report.checks()),
             seconds);
}

ExitCode run(const SelftestOptions& options) {
  const Pair pair = choose(options);
  if (!options.json) {
    fmt::print("{} against {}\n", pair.tested_name, pair.reference_name);
    std::fflush(stdout);
  }
  const double begin = steady_seconds();
  const auto progress = [](const selftest::Progress& at) {
    show_progress(at.operation, static_cast<std::int64_t>(at.done), static_cast<std::int64_t>(at.total));
  };
  const selftest::Report report =
      selftest::run(*pair.tested, *pair.reference, selftest::all_checks(),
                    {.brief = options.brief, .same_bytes = pair.same_bytes, .progress = progress});
  const double seconds = steady_seconds() - begin;
  if (options.json)
    fmt::print("{}\n", json_text(to_json(pair, report, seconds), 2));
  else
    print(report, seconds);
  return report.passed() ? ExitCode::ok : ExitCode::failure;
}

}  // namespace

void add_selftest(CLI::App& app, Action& action) {
  auto options = std::make_shared<SelftestOptions>();
  CLI::App* command = app.add_subcommand(
      "selftest", "Run every operation and quantizer of this build on this machine against the CPU");
  add_backend_option(*command, options->backend,
                     "auto, cpu or cuda; a CPU is compared with its plainest instructions");
  add_threads_option(*command, options->threads);
  command->add_flag("--short", options->brief, "Only what training uses: some seconds");
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad selftest\n"
               "  tetrad selftest --backend cuda --short\n"
               "  tetrad selftest --json | jq .failures");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace tetrad::app
