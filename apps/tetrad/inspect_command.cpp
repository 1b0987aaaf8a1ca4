// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backend_choice.h"
#include "command.h"
#include "model_commands.h"
#include "number_checks.h"
#include "progress.h"
#include "terminal.h"
#include "tetrad/inspect/report.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/recipe/config.h"
#include "tetrad/train/signals.h"

namespace tetrad::app {
namespace {

constexpr std::int64_t kMaxBatches = 4096;
constexpr std::int64_t kMaxDraws = 4096;
constexpr std::int64_t kDrawsOnGpu = 16;
constexpr std::int64_t kDrawsOnCpu = 4;

struct InspectRequest {
  CheckpointOptions model;
  std::string precision = "trained";
  std::int64_t batches = 8;
  std::int64_t tokens = 16384;
  std::int64_t draws = 0;  //!< 0: as many as take little time
  double budget = 15;      //!< percent
  std::string by = "layer";
  std::string yaml;
  bool json = false;
};

void run(const InspectRequest& arguments) {
  TETRAD_CHECK(
      arguments.yaml.empty() || arguments.batches >= std::int64_t{kFewestValues},
      "--yaml writes a suggestion, and {} microbatches are too few for one: use --batches {} or more",
      arguments.batches, kFewestValues);
  const std::unique_ptr<Backend> backend = choose_backend(arguments.model);
  InspectedRun opened = open_inspected(arguments.model.checkpoint, arguments.precision, arguments.batches,
                                       arguments.tokens, *backend, &terminal());
  const FoldersAbove folders(arguments.yaml);  // rather now than after minutes
  const StopSignals signals;
  TimedProgress progress(signals);
  const std::int64_t cheap = backend->name() == "cpu" ? kDrawsOnCpu : kDrawsOnGpu;
  const InspectOptions options{.by_block = arguments.by == "block",
                               .budget = arguments.budget / 100,
                               .draws = arguments.draws > 0 ? arguments.draws : cheap,
                               .progress = std::ref(progress)};
  const Inspection inspection =
      inspect(*opened.decoder, opened.config.precision, opened.data, opened.pass(), options);
  if (arguments.json)
    fmt::print("{}\n", json_text(report_json(opened, inspection, options)));
  else
    fmt::print("{}", report_text(opened, inspection, options));
  if (!arguments.yaml.empty()) write_file_atomically(arguments.yaml, report_yaml(opened, inspection));
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectRequest>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Find the layers that lose most in 4 bits, and those worth keeping in BF16 or FP8");
  add_checkpoint_options(*command, arguments->model);
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
               "  tetrad inspect bf16-run --precision nvfp4 --json");
  command->callback([arguments, &action] {
    action = [arguments] {
      run(*arguments);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
