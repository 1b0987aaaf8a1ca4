// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "config_arguments.h"
#include "dry_run.h"
#include "number_checks.h"
#include "start_ranks.h"
#include "terminal.h"
#include "tetrad/config/config.h"
#include "tetrad/config/paths.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/http/address.h"
#include "tetrad/io/json_text.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/recipe/resolve.h"
#include "tetrad/train/memory_plan.h"
#include "tetrad/train/metrics_server.h"
#include "tetrad/train/origin.h"
#include "tetrad/train/preflight.h"
#include "tetrad/train/resume.h"
#include "tetrad/train/run_folder.h"
#include "tetrad/train/run_parts.h"
#include "tetrad/train/run_ranks.h"
#include "tetrad/train/trainer.h"
#include "version.h"
#include "world.h"

namespace tetrad::app {
namespace {

struct TrainOptions {
  std::vector<std::string> arguments;  //!< configuration files and key=value, in any order
  std::string out;
  std::string resume;
  std::string from;
  std::string branch;
  MachineOptions machine;
  RankOptions ranks;
  bool go_on = false;  //!< if there is a run in `out`, else begin one
  bool change = false;
  bool dry_run = false;
  std::optional<double> price;  //!< of an hour, for the dry run
  std::vector<double> links;    //!< for the dry run: PlannedRanks
  bool keys = false;
  bool json = false;
};

bool says_model(const Provenance& provenance) {
  return std::ranges::any_of(provenance.origins,
                             [](const auto& origin) { return origin.first.starts_with("model."); });
}

/// A run that begins with the weights of a checkpoint has its model, said again or not.
void adopt_model(Config& config, Provenance& provenance) {
  const std::filesystem::path from = config.train.from;
  std::error_code ignored;
  TETRAD_CHECK(!std::filesystem::exists(from / "config.json", ignored) &&
                   !std::filesystem::is_regular_file(from, ignored),
               "{} is not a Tetrad checkpoint: import it first (tetrad import {} -o "
               "CHECKPOINT)",
               from.string(), from.string());
  const OpenCheckpoint open = find_checkpoint(from, &terminal());
  const std::filesystem::path& checkpoint = open.path();
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  Config saved = load_config(files, {});
  if (!says_model(provenance)) {
    config.model = saved.model;
    Config nothing;
    nothing.model.rope.reset();
    Config model;
    model.model = saved.model;
    for (const std::string& key : differences(nothing, model))
      provenance.origins[key] = "checkpoint " + checkpoint.string();
    return;
  }
  if (config.model.text == TextConfig{}) config.model.text = saved.model.text;
  // What a model is called, how new weights would be drawn, how the scan is cut and what texts it is for is
  // no part of the weights.
  ModelConfig wanted = config.model;
  wanted.text = saved.model.text;
  wanted.name = saved.model.name;
  wanted.init_std = saved.model.init_std;
  wanted.mamba.chunk = saved.model.mamba.chunk;
  Config other = saved;
  other.model = wanted;
  const std::vector<std::string> keys = differences(saved, other);
  TETRAD_CHECK(keys.empty(),
               "{} differs from the checkpoint {}, whose weights the run starts with: leave the model "
               "section out, or correct it",
               fmt::join(keys, ", "), checkpoint.string());
}

void print_summary(const Trainer& trainer, const std::filesystem::path& folder, Ending ending, bool json) {
  constexpr const char* kEndings[] = {"finished", "stopped by a signal", "diverged"};
  const char* name = kEndings[static_cast<int>(ending)];
  nlohmann::json summary = {{"ending", name}, {"run", folder.string()}, {"eval", nlohmann::json::object()}};
  for (const EvalMetrics& metrics : trainer.evaluations()) {
    summary["eval"][metrics.source] = metrics.loss;
    if (!json) fmt::print("{}: held-out loss {:.4f}\n", metrics.source, metrics.loss);
  }
  if (json)
    fmt::print("{}\n", json_text(summary));
  else
    fmt::print("{}: {}\n", name, folder.string());
}

/// For run.json: who begins the run and how, and what it takes where its configuration says auto.
nlohmann::json origin_of(const Config& config) {
  Config taken = config;
  taken.precision = resolved(config.precision, config.model.blocks());
  taken.train.seeds = {config.train.data_seed(), config.train.init_seed(), config.train.rounding_seed()};
  const auto leaves = leaf_texts(taken);
  const std::map<std::string, std::string> texts(leaves.begin(), leaves.end());
  nlohmann::json origin = describe_origin(kVersion, kBuildId);
  for (const std::string& key : differences(config, taken)) origin["taken"][key] = texts.at(key);
  return origin;
}

/// What is to be trained, from the command line and what lies in the folders that it names.
struct Beginning {
  Config config;
  Provenance provenance;
  bool resuming = false;
  OpenCheckpoint trunk;  //!< held until the run has a checkpoint of its own
  std::optional<BranchPoint> branch;
};

Beginning resolve(const TrainOptions& options) {
  const ConfigArguments arguments(options.arguments, options.machine);
  const int beginnings =
      (options.resume.empty() ? 0 : 1) + (options.branch.empty() ? 0 : 1) + (arguments.files.empty() ? 0 : 1);
  TETRAD_CHECK(
      beginnings == 1,
      "nothing to train; give one or more CONFIG.yaml, --resume DIR or --branch CHECKPOINT (only one of "
      "the three)");
  TETRAD_CHECK((options.resume.empty() && options.branch.empty()) || options.from.empty(),
               "a run that goes on has its weights already: leave out --from");
  TETRAD_CHECK(
      !options.go_on || (!options.out.empty() && options.resume.empty()),
      "--continue needs --out DIR, and a CONFIG.yaml or --branch CHECKPOINT: it resumes the run there, "
      "or begins it");
  TETRAD_CHECK(!options.change || !options.resume.empty() || options.go_on,
               "--change is for a run that goes on: use it with --resume or --continue");
  Beginning beginning;
  auto& [config, provenance, resuming, trunk, branch] = beginning;
  resuming = !options.resume.empty() || (options.go_on && RunFolder::has_begun(options.out));
  if (!options.resume.empty()) {
    const std::filesystem::path file = config_of_run(options.resume);
    if (file.parent_path() != options.resume) check_claims(file.parent_path());  // a checkpoint's
    const std::vector<std::string> saved = {file.string()};
    config = load_config(saved, arguments.overrides, &provenance);
    check_resumable(load_config(saved, {}), config, saved[0], options.change);
    config.run.out = options.resume;
  } else if (!options.branch.empty()) {
    trunk = find_checkpoint(options.branch, &terminal());
    check_claims(trunk.path());
    const std::vector<std::string> saved = {(trunk.path() / "config.yaml").string()};
    config = load_config(saved, arguments.overrides, &provenance);
    config.run.out = options.out;
    check_resumable(load_config(saved, {}), config, saved[0], true);
    branch = branch_point(trunk.path());
    check_branch(*branch, config);
    if (resuming) {
      const std::vector<std::string> begun = {config_of_run(options.out).string()};
      check_resumable(load_config(begun, {}), config, begun[0], options.change);
    }
  } else {
    config = load_config(arguments.files, arguments.overrides, &provenance);
    if (!options.out.empty()) config.run.out = options.out;
    if (!options.from.empty()) {
      config.train.from = options.from;
      provenance.origins["train.from"] = "command line: --from";
    }
    if (!config.train.from.empty()) config.train.from = std::filesystem::absolute(config.train.from).string();
    if (resuming) {
      const std::vector<std::string> saved = {config_of_run(options.out).string()};
      const Config begun = load_config(saved, {});
      // The checkpoint that it began with is no longer needed, and may be gone.
      if (!config.train.from.empty() && !says_model(provenance)) config.model = begun.model;
      check_resumable(begun, config, saved[0], options.change);
    } else if (!config.train.from.empty()) {
      adopt_model(config, provenance);
    }
  }
  validate(config);
  if (!config.run.metrics_address.empty()) parse_address(config.run.metrics_address, "run.metrics_address");
  if (!resuming) check_kept_layers(config);
  check_transforms(config);
  if (options.dry_run) return beginning;
  TETRAD_CHECK(!config.run.out.empty(), "give a folder for the run's files: --out DIR");
  make_paths_absolute(config);
  return beginning;
}

/// What the run needs besides its ranks: found before they begin.
struct Prepared {
  Config config;
  Backend& backend;
  Dataset dataset;
  std::vector<std::string> warnings;
};

/// What is wrong with the data or does not fit is found before a folder is made.
Prepared prepare(Communicator& world, const Config& config, Backend& backend) {
  std::optional<Prepared> prepared;
  together(world, [&] {
    deal_groups(config, world.size());
    prepared.emplace(config, backend, open_dataset(backend.threads(), config));
    prepared->warnings = data_warnings(prepared->dataset);
    const std::optional<std::string> lacking = shortage(config, backend, world.size());
    // What a CPU has free changes by the minute, and there is swap; a device has what it has.
    TETRAD_CHECK(!lacking || backend.name() == "cpu", "{}", *lacking);
    if (lacking) prepared->warnings.push_back(*lacking);
  });
  return std::move(*prepared);
}

ExitCode train(const TrainOptions& options, const Beginning& beginning, Prepared prepared,
               Communicator& ranks, Watchdog& watchdog) {
  const bool is_first = ranks.rank() == 0;
  const Config& config = prepared.config;
  Backend& backend = prepared.backend;
  const StopSignals signals(is_first);
  MetricsPage page({config.model.name, config.precision.recipe, std::string(backend.name()), kBuildId,
                    step_count(config.train)});
  std::optional<MetricsServer> metrics;  // before a folder is made, too: the port may be taken
  on_first(ranks, [&] {
    if (!config.run.metrics_address.empty()) metrics.emplace(config.run.metrics_address, page);
  });
  const RunFolder held = hold_for_all(ranks, config.run.out, [&] {
    return beginning.resuming
               ? RunFolder::open(config.run.out)
               : RunFolder::create(config.run.out, to_yaml(config), origin_of(config), beginning.branch);
  });
  const std::filesystem::path& folder = held.path();
  RunLog log = is_first ? RunLog(folder / "log.txt", terminal()) : RunLog(terminal());
  for (const std::string& warning : prepared.warnings) log.say("WARNING: {}", warning);
  Trainer trainer(config, std::move(prepared.dataset), to_yaml(config), kBuildId, held, backend, ranks, log);
  log.say("{}: {} parameters, {} recipe, {} backend, {} threads{}", config.model.name,
          parameter_count(config.model), config.precision.recipe, backend.name(), backend.threads().count(),
          ranks.size() == 1 ? "" : fmt::format(", {} ranks over {}", ranks.size(), ranks.name()));
  if (metrics) log.say("figures for Prometheus: {}", metrics->url());
  trainer.show_on(page);
  trainer.tell_steps([&](std::int64_t step) { watchdog.set_step(step); });
  if (beginning.resuming) {
    trainer.resume(options.change);
    if (options.change && is_first) held.replace_config(to_yaml(config));
  } else {
    trainer.start();
  }
  const Ending ending = trainer.run(signals);
  if (is_first) print_summary(trainer, folder, ending, options.json);
  if (ending == Ending::stopped_by_signal) return ExitCode::stopped_by_signal;
  return ending == Ending::diverged ? ExitCode::diverged : ExitCode::ok;
}

ExitCode train_together(const TrainOptions& options, World& world) {
  Beginning beginning;
  on_first(*world.ranks, [&] { beginning = resolve(options); });
  if (options.dry_run)
    return world.is_first()
               ? print_dry_run(beginning.config, beginning.provenance,
                               {std::max(options.ranks.count(), world.ranks->size()), options.links},
                               options.price)
               : ExitCode::ok;
  // The others take over what the first has found: files may not look the same to all of them.
  const std::string text = from_first(*world.ranks, to_yaml(beginning.config));
  beginning.resuming = on_any(*world.ranks, beginning.resuming);
  Config config = parse_config(text, "the first rank's configuration");
  open_backend(world, config.run);
  config.run.backend = world.backend->name();  // the record says what was taken, and from where
  world.watch = watch_ranks(*world.ranks, config.run);
  return train(options, beginning, prepare(*world.ranks, config, *world.backend), *world.ranks, *world.watch);
}

ExitCode run(TrainOptions options) {
  if (options.keys) {
    fmt::print("{}", schema_help());
    return ExitCode::ok;
  }
  choose_backend_for(options.ranks, options.machine.backend);
  if (!options.dry_run) start_ranks(options.ranks);
  return on_all_ranks([&](World& world) { return train_together(options, world); });
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->add_option("CONFIG", options->arguments,
                      "YAML files, merged from left to right, and key=value with dotted keys");
  command->add_option("-o,--out", options->out, "Folder for the run's files")->type_name("DIR");
  command->add_option("--resume", options->resume, "Continue the run in this folder, bit for bit")
      ->type_name("DIR");
  command->add_flag(
      "--continue", options->go_on,
      "Resume the run in --out if there is one, else begin it: for jobs that are started again");
  command->add_flag(
      "--change", options->change,
      "With --resume or --continue: the run goes on with other settings than it began with (train.steps, "
      "train.tokens, optim, schedule, precision, data.phases, more data.sources), and notes them");
  command
      ->add_option("--from", options->from,
                   "Start at step 0 with the weights of this checkpoint or run (same as train.from=…)")
      ->type_name("CHECKPOINT");
  command
      ->add_option(
          "--branch", options->branch,
          "Go on from this checkpoint, or a run's newest, as a new run in --out: weights, moments, step and "
          "place in the data are taken over, what --change allows may be given as key=value")
      ->type_name("CHECKPOINT");
  add_backend_option(*command, options->machine.backend, "auto, cpu or cuda (same as run.backend=…)");
  add_threads_option(*command, options->machine.threads);
  add_rank_options(*command, options->ranks);
  command->add_flag(
      "--dry-run", options->dry_run,
      "Look at everything and train nothing: configuration, data, sizes, what fits, the precision of "
      "every GEMM, time; with --ranks or --gpus, which need not be there, also what each sends");
  command
      ->add_option("--price", options->price,
                   "Price of the machine per hour, for the price of the run in --dry-run")
      ->check(number_above(0))
      ->type_name("AMOUNT");
  command
      ->add_option(
          "--links", options->links,
          "For --dry-run of ranks: how many a node has, and the GB/s that each can send inside it and to "
          "other nodes (default: 8,330,45)")
      ->delimiter(',')
      ->expected(3)
      ->check(number_above(0))
      ->type_name("N,GB/S,GB/S");
  command->add_flag("--keys", options->keys,
                    "List every configuration key with its default and meaning, and stop");
  command->add_flag("--json", options->json, "Print one JSON object at the end");
  set_examples(
      *command,
      "  tetrad train configs/quickstart.yaml --out run\n"
      "  tetrad train configs/quickstart.yaml precision.recipe=bf16 train.steps=100 --out run-bf16\n"
      "  tetrad train configs/llama3-8b.yaml --dry-run\n"
      "  tetrad train configs/llama3-8b.yaml train.groups=64 --gpus 64 --dry-run\n"
      "  tetrad train --resume run\n"
      "  tetrad train configs/quickstart.yaml --out run --continue\n"
      "  tetrad train --resume run --change train.steps=600 optim.lr=1e-4\n"
      "  tetrad train --branch run precision.recipe=nvfp4 --out run-nvfp4\n"
      "  tetrad train --branch run/checkpoints/step-300 optim.lr=1e-4 train.steps=900 --out slower\n"
      "  tetrad train more.yaml --from imported --out tuned\n"
      "  tetrad train configs/llama-1b.yaml train.groups=8 --gpus 8 --out run\n"
      "  tetrad train configs/quickstart.yaml train.microbatch=1 train.groups=2 --ranks 2 --out run\n"
      "  mpirun -n 4 tetrad train configs/llama-1b.yaml train.groups=4 --out run\n"
      "  tetrad train --keys | grep precision");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace tetrad::app
