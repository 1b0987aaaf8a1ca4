// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "model_commands.h"
#include "number_checks.h"
#include "progress.h"
#include "start_ranks.h"
#include "terminal.h"
#include "tetrad/eval/loaded_model.h"
#include "tetrad/inspect/report.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/recipe/config.h"
#include "tetrad/train/signals.h"
#include "world.h"

namespace tetrad::app {
namespace {

constexpr std::int64_t kMaxBatches = 4096;
constexpr std::int64_t kMaxDraws = 4096;
constexpr std::int64_t kDrawsOnGpu = 16;
constexpr std::int64_t kDrawsOnCpu = 4;

struct InspectRequest {
  CheckpointOptions model;
  RankOptions ranks;
  std::string precision = "trained";
  std::int64_t batches = 8;
  std::int64_t tokens = 16384;
  std::int64_t draws = 0;  //!< 0: as many as take little time
  double budget = 15;      //!< percent
  std::string by = "layer";
  std::string yaml;
  bool json = false;
};

ExitCode inspect_together(const InspectRequest& arguments, World& world) {
  RunConfig how;
  how.backend = arguments.model.backend;
  how.threads = arguments.model.threads;
  how.selftest = "off";
  open_backend(world, how);
  Communicator& ranks = *world.ranks;
  OpenCheckpoint held;  // by the first: which is the newest may change while others look
  on_first(ranks, [&] { held = find_checkpoint(arguments.model.checkpoint, &terminal()); });
  const std::string checkpoint = from_first(ranks, held.path().string());
  InspectedRun opened;
  together(ranks, [&] {
    opened =
        open_inspected(checkpoint, arguments.precision, arguments.batches, arguments.tokens, *world.backend);
  });
  std::optional<FoldersAbove> folders;  // rather now than after minutes
  on_first(ranks, [&] { folders.emplace(arguments.yaml); });
  const StopSignals signals(world.is_first());
  TimedProgress progress(signals, world.is_first());
  const std::int64_t cheap = world.backend->name() == "cpu" ? kDrawsOnCpu : kDrawsOnGpu;
  const InspectOptions options{.by_block = arguments.by == "block",
                               .budget = arguments.budget / 100,
                               .draws = arguments.draws > 0 ? arguments.draws : cheap,
                               .progress = std::ref(progress)};
  const Inspection inspection =
      inspect(ranks, *opened.decoder, opened.config.precision, opened.data, opened.pass(), options);
  on_first(ranks, [&] {
    if (arguments.json)
      fmt::print("{}\n", json_text(report_json(opened, inspection, options)));
    else
      fmt::print("{}", report_text(opened, inspection, options));
    if (!arguments.yaml.empty()) write_file_atomically(arguments.yaml, report_yaml(opened, inspection));
  });
  return ExitCode::ok;
}

ExitCode run(InspectRequest arguments) {
  TETRAD_CHECK(
      arguments.yaml.empty() || arguments.batches >= std::int64_t{kFewestValues},
      "--yaml writes a suggestion, and {} microbatches are too few for one: use --batches {} or more",
      arguments.batches, kFewestValues);
  choose_backend_for(arguments.ranks, arguments.model.backend);
  start_ranks(arguments.ranks);
  return on_all_ranks([&](World& world) { return inspect_together(arguments, world); });
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectRequest>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Find the layers that lose most in 4 bits, and those worth keeping in BF16 or FP8");
  add_checkpoint_options(*command, arguments->model);
  add_rank_options(*command, arguments->ranks);
  std::vector<std::string> precisions = {"trained"};  // and every recipe that quantizes
  for (const std::string_view name : kRecipeNames)
    if (name != "bf16") precisions.emplace_back(name);
  command
      ->add_option("--precision", arguments->precision,
                   fmt::format("trained (as at that point of training), or a recipe: {}",
                               fmt::join(precisions.begin() + 1, precisions.end(), ", ")))
      ->check(CLI::IsMember(precisions))
      ->type_name("P")
      ->capture_default_str();
  command
      ->add_option("--batches", arguments->batches,
                   fmt::format("Microbatches to measure on; fewer than {} suggest nothing", kFewestValues))
      ->check(whole_number(2, kMaxBatches))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--tokens", arguments->tokens,
                   "Most tokens of a microbatch; it has the run's own sequences, or fewer")
      ->check(whole_number(1))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--draws", arguments->draws,
                   fmt::format("Draws of random numbers that tell the bias of gradients from their variance "
                               "[{} on a GPU, {} on the CPU]",
                               kDrawsOnGpu, kDrawsOnCpu))
      ->check(whole_number(2, kMaxDraws))
      ->type_name("N");
  command
      ->add_option("--budget", arguments->budget,
                   "Percent of the linear layers' FLOP allowed in BF16; FP8 counts half")
      ->check(number_between(0, 100))
      ->type_name("PERCENT")
      ->capture_default_str();
  command
      ->add_option("--by", arguments->by,
                   "Unit that is kept or quantized as a whole: a linear layer, or a block with its two")
      ->check(CLI::IsMember({"layer", "block"}))
      ->type_name("WHAT")
      ->capture_default_str();
  command
      ->add_option("--yaml", arguments->yaml,
                   "Also write the suggestion as a second configuration file for tetrad train")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad inspect run\n"
               "  tetrad inspect run/checkpoints/step-300 --by block --budget 25 --yaml kept.yaml\n"
               "  tetrad inspect bf16-run --precision nvfp4 --json\n"
               "  tetrad inspect run --gpus 8 --batches 32");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace tetrad::app
