// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "progress.h"
#include "terminal.h"
#include "tetrad/interchange/import.h"
#include "tetrad/io/json_text.h"
#include "version.h"

namespace tetrad::app {
namespace {

struct ImportCommand {
  std::string from;
  std::string out;
  int threads = 0;
  bool force = false;
  bool json = false;
};

void run(const ImportCommand& command) {
  const StopSignals signals;
  Threads threads(command.threads);
  const ImportSummary summary = import_checkpoint(
      threads, command.from, command.out,
      {kBuildId, command.force ? Overwrite::yes : Overwrite::no, stoppable_progress("importing", signals)});
  for (const std::string& warning : summary.warnings) terminal().say(warning);
  if (command.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"checkpoint", command.out},
                                                {"model", summary.model},
                                                {"parameters", summary.parameters},
                                                {"tokenizer", summary.tokenizer}}));
  else
    fmt::print("{}: {}, {} parameters, {}\n", command.out, summary.model, summary.parameters,
               summary.tokenizer.empty() ? "no tokenizer" : "tokenizer " + summary.tokenizer);
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  auto options = std::make_shared<ImportCommand>();
  CLI::App* command = app.add_subcommand("import", "Import a Hugging Face or GGUF model as a checkpoint");
  command
      ->add_option(
          "DIR", options->from,
          "Hugging Face folder (Llama, Qwen3 or Nemotron-H): config.json, safetensors in BF16, F16, F32 or "
          "NVFP4, tokenizer.json; or a GGUF file")
      ->required();
  command->add_option("-o,--out", options->out, "Checkpoint to write")->required()->type_name("CHECKPOINT");
  command->add_flag("--force", options->force, "Replace CHECKPOINT if it is an earlier import");
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  add_threads_option(*command, options->threads);
  set_examples(*command,
               "  tetrad import Llama-3.2-1B -o llama\n"
               "  tetrad import model.gguf -o model\n"
               "  tetrad eval llama --data data/code-heldout\n"
               "  tetrad train more.yaml --from llama --out tuned");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
