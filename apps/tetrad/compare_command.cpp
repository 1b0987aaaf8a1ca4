// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "backend_choice.h"
#include "benchmarks.h"
#include "command.h"
#include "config_arguments.h"
#include "number_checks.h"
#include "terminal.h"
#include "tetrad/compare/probe_runner.h"
#include "tetrad/compare/report.h"
#include "tetrad/compare/runner.h"
#include "tetrad/config/config.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/core/utc_time.h"
#include "tetrad/eval/checks.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/folder_lock.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/recipe/config.h"
#include "tetrad/train/origin.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/trainer.h"
#include "version.h"

namespace tetrad::app {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  std::vector<std::string> arguments;  //!< configuration files and key=value, in any order
  std::string arms;
  std::string out;
  std::string resume;
  MachineOptions machine;
  std::int64_t seeds = 0;
  double margin = 0;
  std::vector<double> lr_factors;
  double price = 0;
  std::vector<std::string> choices;
  bool light = false;
  std::vector<std::string> probes = {"gradients", "recovery", "checks"};
  bool dry_run = false;
  bool json = false;
};

constexpr const char* kPlanFile = "compare.yaml";
constexpr const char* kCommonFile = "common.yaml";

struct Definition {
  ComparePlan plan;
  std::string common;  //!< the configuration that all trials share, YAML
};

/// What was asked for on the command line.
Definition asked_for(const CompareOptions& options) {
  const ConfigArguments arguments(options.arguments);
  TETRAD_CHECK(!arguments.files.empty() && !options.arms.empty(),
               "nothing to compare; give CONFIG.yaml and --arms, or --resume DIR");
  ComparePlan plan = read_plan(options.arms);
  if (options.seeds > 0) plan.seeds = options.seeds;
  if (options.margin > 0) plan.margin = options.margin;
  if (!options.lr_factors.empty()) plan.lr_factors = options.lr_factors;
  return {plan, to_yaml(load_config(arguments.files, arguments.overrides))};
}

/// What a comparison that began is about.
std::optional<Definition> found_in(const fs::path& folder) {
  const fs::path plan = folder / kPlanFile;
  if (!fs::exists(plan)) return std::nullopt;
  return Definition{parse_plan(config::read_text(plan.string()), plan.string()),
                    config::read_text((folder / kCommonFile).string())};
}

/// Seeds may be added to a comparison, since they come after those that are there; all else stays.
Definition define(const CompareOptions& options, const fs::path& folder) {
  const std::optional<Definition> found = found_in(folder);
  if (options.resume.empty()) {
    Definition asked = asked_for(options);
    if (found) {
      ComparePlan same = asked.plan;
      same.seeds = found->plan.seeds;
      TETRAD_CHECK(
          same == found->plan && asked.common == found->common && asked.plan.seeds >= found->plan.seeds,
          "{} holds another comparison: continue it (tetrad compare --resume {}) or choose another "
          "--out",
          folder.string(), folder.string());
    }
    return asked;
  }
  TETRAD_CHECK(found.has_value(), "{} is not the folder of a comparison: it has no {}", folder.string(),
               kPlanFile);
  TETRAD_CHECK(
      options.arguments.empty() && options.arms.empty() && options.margin == 0 && options.lr_factors.empty(),
      "--resume continues what {} describes: leave out everything but --seeds", folder.string());
  Definition definition = *found;
  TETRAD_CHECK(options.seeds == 0 || options.seeds >= definition.plan.seeds, "{} has {} seeds already",
               folder.string(), definition.plan.seeds);
  if (options.seeds > 0) definition.plan.seeds = options.seeds;
  return definition;
}

/// A folder without a plan is not of a comparison, and what lies there under the names of its files not ours.
void refuse_files_of_others(const fs::path& folder) {
  for (const char* name : {kCommonFile, "report.json", "report.html", "runs"})
    TETRAD_CHECK(!fs::exists(folder / name),
                 "{} is there, but {} is not the folder of a comparison (it has no {}): choose another --out",
                 (folder / name).string(), folder.string(), kPlanFile);
}

Machine describe(Backend& backend) {
  const bench::Peak peak = bench::measure_peak(backend);
  const std::string name(backend.name());
  return {name, hardware_name(backend), name == "cpu" ? backend.threads().count() : 0, peak.tflops,
          peak.name};
}

ReportContext make_context(const CompareOptions& options) {
  ReportContext context;
  context.created = utc_time(std::time(nullptr));
  context.build = kBuildId;
  if (options.price > 0) context.price_per_hour = options.price;
  return context;
}

/// Returns what it says: for a program, or in a line per arm.
std::string write_report(const Comparison& comparison, const fs::path& folder,
                         const std::vector<ArmProbes>& probes, const ReportContext& context, bool json) {
  const std::vector<ArmOutcome> arms = read_outcomes(comparison, folder);
  const nlohmann::json report = make_report(comparison, arms, probes, context);
  const std::string text = json_text(report) + "\n";
  write_file_atomically(folder / "report.json", text);
  write_file_atomically(folder / "report.html", make_page(report));
  return json ? text : summary_text(arms);
}

void print_plan(const Comparison& comparison) {
  const Config& config = comparison.trials.front().config;
  const std::int64_t tokens = step_count(config.train) * config.train.batch * config.train.sequence;
  fmt::print("{} runs of {} tokens, {}:\n", comparison.trials.size(), tokens, config.model.name);
  for (const Trial& trial : comparison.trials) fmt::print("  {}\n", trial.folder);
  fmt::print("{} keys are the same in all arms (SHA-256 {}); these differ:\n", comparison.lock.common_keys,
             comparison.lock.common_sha256);
  for (const Difference& difference : comparison.lock.differences) {
    fmt::print("  {}\n", difference.key);
    for (std::size_t i = 0; i < difference.values.size(); ++i)
      fmt::print("    {}: {}\n", comparison.plan.arms[i].name, difference.values[i]);
  }
}

/// What is wrong with the data is found before anything is made; what is doubtful is said. Only mixes have
/// data of their own.
void check_data(Threads& threads, const Comparison& comparison) {
  const Trial& first = comparison.trials.front();
  for (const Trial& trial : comparison.trials) {
    if (trial.arm != first.arm || trial.seed != first.seed || trial.lr_factor != first.lr_factor) continue;
    for (const std::string& warning : data_warnings(open_dataset(threads, trial.config)))
      terminal().say("WARNING: " + warning);
  }
}

ExitCode run(const CompareOptions& options) {
  const fs::path folder = options.resume.empty() ? options.out : options.resume;
  TETRAD_CHECK(!folder.empty() || options.dry_run, "give a folder for the runs and the report: --out DIR");
  TETRAD_CHECK(!find_invalid_utf8(folder.native()),
               "{} is not UTF-8, as what the runs write there must be: choose another --out",
               quoted_name(folder.native()));
  const Definition definition = define(options, folder);
  const Comparison comparison = expand(definition.plan, definition.common);
  for (const std::string& warning : identical_arms(comparison)) terminal().say("WARNING: " + warning);
  if (options.dry_run) {
    print_plan(comparison);
    return ExitCode::ok;
  }
  RunConfig how = comparison.trials.front().config.run;
  if (!options.machine.backend.empty()) how.backend = options.machine.backend;
  if (options.machine.threads > 0) how.threads = options.machine.threads;
  const std::unique_ptr<Backend> chosen = choose_backend(how.backend, static_cast<int>(how.threads));
  Backend& backend = *chosen;
  check_data(backend.threads(), comparison);
  ChecksConfig checks;
  for (const std::string& file : options.choices) checks.choices.push_back(read_questions(file));
  std::error_code error;
  fs::create_directories(folder, error);
  TETRAD_CHECK(!error, "cannot create {}: {}", folder.string(), error.message());
  const FolderLock held(folder);
  if (!found_in(folder)) refuse_files_of_others(folder);
  write_file_atomically(folder / kCommonFile, definition.common);
  write_file_atomically(folder / kPlanFile, to_yaml(definition.plan));

  const StopSignals signals;
  const ReportContext context = make_context(options);
  std::vector<ArmProbes> probes = probes_so_far(comparison, folder);
  const auto report = [&] { return write_report(comparison, folder, probes, context, options.json); };
  const RunContext runs{kBuildId, describe_origin(kVersion, kBuildId), backend, signals, terminal()};
  const std::set<std::string> wanted(options.probes.begin(), options.probes.end());
  const std::size_t probed = wanted.contains("checks") ? probes.size() : wanted.contains("gradients") ? 1 : 0;
  const RunnerOptions runner{!options.light, probed, [&] { return describe(backend); }, [&] { report(); }};
  bool finished = run_trials(comparison, folder, runner, runs);
  if (finished) finished = run_probes(comparison, folder, wanted, checks, runs, probes);
  const std::string said = report();
  if (!finished) {
    terminal().say(fmt::format("stopped; continue with: tetrad compare --resume {}", folder.string()));
    return ExitCode::stopped_by_signal;
  }
  fmt::print("{}", said);
  if (!options.json) fmt::print("\nThe report: {}\n", (folder / "report.html").string());
  return ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "Train at several precisions and write a report that compares them");
  command->add_option(
      "CONFIG", options->arguments,
      "What all arms share: YAML files, merged from left to right, and key=value with dotted keys");
  command
      ->add_option("--arms", options->arms,
                   fmt::format("Recipes ({}), or a YAML file of arms; the first is the reference",
                               fmt::join(kRecipeNames, ",")))
      ->type_name("LIST|FILE");
  command->add_option("--seeds", options->seeds, "Runs per arm, from train.seed on")
      ->check(whole_number(1, std::numeric_limits<std::int64_t>::max(),
                           "it is the number of runs of each arm, the first of them with train.seed"))
      ->type_name("N");
  command
      ->add_option("--margin", options->margin,
                   "Percent of the reference's loss within which an arm is called equivalent (default: 1.5)")
      ->check(number_above(0))
      ->type_name("PERCENT");
  command->add_option("--lr-factors", options->lr_factors, "Run every arm with these multiples of optim.lr")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_above(0))
      ->type_name("LIST");
  command->add_option("-o,--out", options->out, "Folder for runs and report")->type_name("DIR");
  add_backend_option(*command, options->machine.backend, "auto, cpu or cuda (same as run.backend=…)");
  add_threads_option(*command, options->machine.threads);
  command->add_option("--resume", options->resume, "Continue the comparison in this folder; --seeds may grow")
      ->type_name("DIR");
  command
      ->add_option(
          "--choices", options->choices,
          "Multiple-choice questions for every arm, one JSON object a line: question, choices, answer; "
          "may be given several times")
      ->allow_extra_args(false)
      ->type_name("FILE.jsonl");
  command
      ->add_option("--price", options->price, "Price of the machine per hour, to compute the price of tokens")
      ->check(number_above(0))
      ->type_name("AMOUNT");
  command->add_flag(
      "--light", options->light,
      "Make no checkpoints but those that --probes needs and train.checkpoint asks for (default: the last "
      "of every run is kept)");
  command
      ->add_option("--probes", options->probes,
                   "What to measure after the runs: gradients (compared with the reference's), recovery, "
                   "checks; or none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"gradients", "recovery", "checks", "none"}))
      ->type_name("LIST")
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run,
                    "List the runs and the differences between the arms, and stop");
  command->add_flag("--json", options->json, "Print the report as one JSON object");
  set_examples(*command,
               "  tetrad compare configs/quickstart.yaml --arms bf16,nvfp4 --seeds 3 --out comparison\n"
               "  tetrad compare configs/quickstart.yaml --arms configs/compare/ladder.yaml --dry-run\n"
               "  tetrad compare --resume comparison --seeds 6");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace tetrad::app
