// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backend_choice.h"
#include "benchmarks.h"
#include "command.h"
#include "compare_definition.h"
#include "number_checks.h"
#include "start_ranks.h"
#include "terminal.h"
#include "tetrad/compare/probe_runner.h"
#include "tetrad/compare/report.h"
#include "tetrad/compare/runner.h"
#include "tetrad/core/error.h"
#include "tetrad/core/threads.h"
#include "tetrad/core/utc_time.h"
#include "tetrad/eval/checks.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/folder_lock.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/safetensors_header.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/recipe/config.h"
#include "tetrad/train/origin.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/run_parts.h"
#include "version.h"
#include "world.h"

namespace tetrad::app {
namespace {

namespace fs = std::filesystem;

/// All ranks, as one machine.
Machine describe(Backend& backend, int ranks) {
  const bench::Peak peak = bench::measure_peak(backend);
  const std::string name(backend.name());
  const std::string device = hardware_name(backend);
  return {name, ranks == 1 ? device : fmt::format("{} ranks: {}", ranks, device),
          name == "cpu" ? ranks * backend.threads().count() : 0, ranks * peak.tflops, peak.name};
}

ReportContext make_context(const CompareOptions& options) {
  ReportContext context;
  context.created = utc_time(std::time(nullptr));
  context.build = kBuildId;
  if (options.price > 0) context.price_per_hour = options.price;
  return context;
}

/// What it was begun with; an empty object for comparisons of programs that did not note it.
nlohmann::json beginning_of(const fs::path& folder) {
  nlohmann::json origin = nlohmann::json::parse(std::ifstream(folder / kOriginFile), nullptr, false);
  return origin.is_object() ? origin : nlohmann::json::object();
}

struct WrittenReport {
  fs::path page;
  std::string said;  //!< for a program, or in a line per arm
};

WrittenReport write_report(const Comparison& comparison, const fs::path& folder,
                           std::vector<ArmProbes> probes, ReportContext context, const std::string& against,
                           bool json) {
  std::string name = "report";
  if (!against.empty()) {
    const auto arm = std::ranges::find(comparison.plan.arms, against, &NamedOverrides::name);
    context.reference = static_cast<std::size_t>(arm - comparison.plan.arms.begin());
    name += "-against-" + against;
    for (ArmProbes& one : probes) {  // these are beside those of the first arm
      one.gradients.clear();
      one.losses.reset();
    }
  }
  context.origin = beginning_of(folder);
  const std::vector<ArmOutcome> arms = read_outcomes(comparison, folder, context.reference);
  const nlohmann::json report = make_report(comparison, arms, probes, context);
  const std::string text = json_text(report) + "\n";
  write_file_atomically(folder / (name + ".json"), text);
  write_file_atomically(folder / (name + ".html"), make_page(report));
  return {folder / (name + ".html"), json ? text : summary_text(comparison, arms)};
}

/// The last report, to the user.
void tell(const WrittenReport& report, bool json) {
  fmt::print("{}", report.said);
  if (!json) fmt::print("\nThe report: {}\n", report.page.string());
}

void print_plan(const Comparison& comparison) {
  const Config& config = comparison.trials.front().config;
  const std::int64_t tokens = step_count(config.train) * config.train.batch * config.train.sequence;
  fmt::print("{} runs of {} tokens, {}:\n", comparison.trials.size(), tokens, config.model.name);
  if (const std::int64_t steps = comparison.trunk_steps(); steps > 0)
    fmt::print("the first {} of {} steps are those of {} trunks, which all arms share\n", steps,
               step_count(config.train), comparison.trunks.size());
  for (const Trunk& trunk : comparison.trunks)
    fmt::print("  {}\n", trunk.given ? trunk.given->checkpoint : trunk.folder);
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
/// data of their own. Returns describe_beginning() of the first.
nlohmann::json check_data(Threads& threads, const Comparison& comparison, const nlohmann::json& command) {
  const Trial& first = comparison.trials.front();
  nlohmann::json beginning;
  for (const Trial& trial : comparison.trials) {
    if (trial.arm != first.arm || trial.seed != first.seed || trial.lr_factor != first.lr_factor) continue;
    const Dataset dataset = open_dataset(threads, trial.config);
    for (const std::string& warning : data_warnings(dataset)) terminal().say("WARNING: " + warning);
    if (beginning.empty()) beginning = describe_beginning(command, dataset);
  }
  return beginning;
}

/// What is to be compared: what the first rank finds in the arguments and the folder, for all of them.
Comparison define_together(const CompareOptions& options, const fs::path& folder, Communicator& ranks,
                           Definition& definition) {
  on_first(ranks, [&] {
    TETRAD_CHECK(!folder.empty() || options.dry_run, "give a folder for the runs and the report: --out DIR");
    TETRAD_CHECK(!find_invalid_utf8(folder.native()),
                 "{} is not UTF-8, as what the runs write there must be: choose another --out",
                 quoted_name(folder.native()));
    definition = define(options, folder);
  });
  definition.common = from_first(ranks, definition.common);
  definition.plan = parse_plan(from_first(ranks, to_yaml(definition.plan)), "the first rank's plan");
  std::optional<Comparison> comparison;
  together(ranks, [&] {
    comparison = expand(definition.plan, definition.common);
    TETRAD_CHECK(options.against.empty() || std::ranges::any_of(comparison->plan.arms,
                                                                [&](const NamedOverrides& arm) {
                                                                  return arm.name == options.against;
                                                                }),
                 "--against {}: there is no such arm", options.against);
  });
  for (const std::string& warning : identical_arms(*comparison)) terminal().say("WARNING: " + warning);
  return std::move(*comparison);
}

/// Holds the folder of a comparison, and writes there what it is.
FolderLock hold(const fs::path& folder, const Definition& definition, const nlohmann::json& beginning) {
  std::error_code error;
  fs::create_directories(folder, error);
  TETRAD_CHECK(!error, "cannot create {}: {}", folder.string(), error.message());
  FolderLock held(folder);
  if (!found_in(folder)) refuse_files_of_others(folder);
  write_file_atomically(folder / kCommonFile, definition.common);
  write_file_atomically(folder / kPlanFile, to_yaml(definition.plan));
  if (!fs::exists(folder / kOriginFile))
    write_file_atomically(folder / kOriginFile, json_text(beginning) + "\n");
  return held;
}

ExitCode compare_together(const CompareOptions& options, World& world) {
  const fs::path folder = options.resume.empty() ? options.out : options.resume;
  Definition definition;
  const Comparison comparison = define_together(options, folder, *world.ranks, definition);
  if (options.dry_run) {
    if (world.is_first()) print_plan(comparison);
    return ExitCode::ok;
  }
  const std::string& against = options.against;
  bool is_told = false;
  on_first(*world.ranks, [&] {
    if (against.empty() || options.resume.empty() || !all_have_ended(comparison, folder)) return;
    const FolderLock held(folder);
    tell(write_report(comparison, folder, probes_so_far(comparison, folder), make_context(options), against,
                      options.json),
         options.json);
    is_told = true;
  });
  if (on_any(*world.ranks, is_told)) return ExitCode::ok;
  RunConfig how = comparison.trials.front().config.run;
  how.selftest = "off";
  if (!options.machine.backend.empty()) how.backend = options.machine.backend;
  if (options.machine.threads > 0) how.threads = options.machine.threads;
  open_backend(world, how);
  Communicator& ranks = *world.ranks;
  Backend& backend = *world.backend;
  const nlohmann::json origin = describe_origin(kVersion, kBuildId);
  ChecksConfig checks;
  std::optional<FolderLock> held;
  std::vector<ArmProbes> probes(comparison.plan.arms.size());
  on_first(ranks, [&] {
    const nlohmann::json beginning = check_data(backend.threads(), comparison, origin.at("command"));
    for (const std::string& file : options.choices) checks.choices.push_back(read_questions(file));
    held.emplace(hold(folder, definition, beginning));
    probes = probes_so_far(comparison, folder);
  });

  const StopSignals signals(world.is_first());
  const ReportContext context = make_context(options);
  const auto report = [&] { return write_report(comparison, folder, probes, context, "", options.json); };
  const RunContext runs{kBuildId, origin, backend, ranks, signals, terminal()};
  const std::vector<std::string>& said = comparison.plan.probes;
  std::set<std::string> wanted(said.begin(), said.end());
  if (said.empty()) wanted.insert(kProbes.begin(), kProbes.end());
  const bool probes_reference = wanted.contains("gradients") || wanted.contains("losses");
  const std::size_t probed = wanted.contains("checks") ? probes.size() : probes_reference ? 1 : 0;
  const RunnerOptions runner{!comparison.plan.light, probed, [&] { return describe(backend, ranks.size()); },
                             [&] { report(); }};
  bool finished = run_trials(comparison, folder, runner, runs);
  if (finished) finished = run_probes(comparison, folder, wanted, checks, runs, probes);
  on_first(ranks, [&] {
    const WrittenReport written = report();
    if (!finished)
      terminal().say(fmt::format("stopped; continue with: tetrad compare --resume {}", folder.string()));
    else
      tell(against.empty() ? written
                           : write_report(comparison, folder, probes, context, against, options.json),
           options.json);
  });
  return finished ? ExitCode::ok : ExitCode::stopped_by_signal;
}

ExitCode run(CompareOptions options) {
  choose_backend_for(options.ranks, options.machine.backend);
  if (!options.dry_run) start_ranks(options.ranks);
  return on_all_ranks([&](World& world) { return compare_together(options, world); });
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
  command
      ->add_option(
          "--trunk-steps", options->trunk_steps,
          "Train one trunk of so many steps for each seed, in the reference's precision, and let every arm "
          "branch off from it: far less noise than runs that begin apart")
      ->check(whole_number(1, std::numeric_limits<std::int64_t>::max(),
                           "it is the number of steps that all arms of a seed share"))
      ->type_name("N");
  command
      ->add_option(
          "--branch", options->branches,
          "Let every arm go on from this checkpoint, or a run's newest, instead of beginning; given several "
          "times, checkpoints of other seeds. CONFIG is theirs: give key=value alone")
      ->allow_extra_args(false)
      ->type_name("CHECKPOINT");
  command
      ->add_option(
          "--primary", options->primary,
          "What verdicts rest on: the heldout loss at the end (default), the training loss of the last tenth "
          "of the steps, or of the first steps after a branch")
      ->check(CLI::IsMember({"heldout", "last", "first"}))
      ->type_name("WINDOW");
  command
      ->add_option("--first-steps", options->first_steps,
                   "How many steps the window `first` has (default: 100)")
      ->check(whole_number(1, std::numeric_limits<std::int64_t>::max(),
                           "it is a number of steps after the branch"))
      ->type_name("N");
  command
      ->add_option(
          "--looks", options->looks,
          "How often the verdicts are to be seen, each time with more seeds, without more errors than stated "
          "(default: once)")
      ->check(whole_number(1, 100, "it is how often verdicts are seen before the last seeds are added"))
      ->type_name("N");
  command
      ->add_option(
          "--against", options->against,
          "Compare all arms with this one too, in a report of its own; of a finished comparison at once")
      ->type_name("ARM");
  command->add_option("--lr-factors", options->lr_factors, "Run every arm with these multiples of optim.lr")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_above(0))
      ->type_name("LIST");
  command->add_option("-o,--out", options->out, "Folder for runs and report")->type_name("DIR");
  add_backend_option(*command, options->machine.backend, "auto, cpu or cuda (same as run.backend=…)");
  add_threads_option(*command, options->machine.threads);
  add_rank_options(*command, options->ranks);
  command
      ->add_option(
          "--resume", options->resume,
          "Continue the comparison in this folder; --seeds may grow, or --branch name further trunks")
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
                   "What to measure after the runs: gradients and losses (on the reference's weights, beside "
                   "its own), recovery, checks; or none (default: everything; with --resume, as it began)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(probe_choices()))
      ->type_name("LIST");
  command->add_flag("--dry-run", options->dry_run,
                    "List the runs and the differences between the arms, and stop");
  command->add_flag("--json", options->json, "Print the report as one JSON object");
  set_examples(
      *command,
      "  tetrad compare configs/quickstart.yaml --arms bf16,nvfp4 --seeds 3 --out comparison\n"
      "  tetrad compare configs/quickstart.yaml --arms bf16,nvfp4 --seeds 3 --trunk-steps 150 --out "
      "branches\n"
      "  tetrad compare --branch run-1 --branch run-2 --arms bf16,nvfp4 train.steps=900 --out branches\n"
      "  tetrad compare configs/quickstart.yaml --arms configs/compare/ladder.yaml --dry-run\n"
      "  tetrad compare configs/llama-162m.yaml train.groups=8 --arms bf16,nvfp4 --gpus 8 --out comparison\n"
      "  tetrad compare --resume comparison --seeds 6\n"
      "  tetrad compare --resume comparison --against nvfp4");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace tetrad::app
