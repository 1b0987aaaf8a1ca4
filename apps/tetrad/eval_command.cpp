#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "model_commands.h"
#include "tetrad/eval/evaluation.h"

namespace tetrad::app {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::vector<std::string> data;
  std::int64_t sequences = 0;
  std::int64_t batch = 8;
  std::int64_t sequence = 0;
  bool json = false;
};

void run(const EvalOptions& options) {
  LoadedModel model = load_model(options.model, options.batch, options.sequence);
  nlohmann::json results = nlohmann::json::object();
  for (const std::string& name : options.data) {
    const TokenSequences data(name, model.sequence(), name);
    data.file().validate(model.config().model.vocab);
    Pass pass = model.pass();
    const Evaluation result = evaluate(model.decoder(), pass, data, options.batch, options.sequences);
    nlohmann::json entry = {
        {"loss", result.loss}, {"perplexity", result.perplexity()}, {"tokens", result.tokens}};
    if (result.bits_per_byte) entry["bits_per_byte"] = *result.bits_per_byte;
    if (result.excess_nats) entry["excess_nats"] = *result.excess_nats;
    results[name] = entry;
    if (options.json) continue;
    fmt::print("{}: loss {:.4f} nats, perplexity {:.3f}", name, result.loss, result.perplexity());
    if (result.bits_per_byte) fmt::print(", {:.4f} bits per byte", *result.bits_per_byte);
    if (result.excess_nats) fmt::print(", {:+.4f} nats over the true entropy", *result.excess_nats);
    fmt::print(" ({} tokens)\n", result.tokens);
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"checkpoint", model.path().string()}, {"data", results}}.dump());
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "Loss, perplexity and bits per byte of a checkpoint");
  add_model_options(*command, options->model);
  command->add_option("--data", options->data, "Token files (NAME of NAME.bin and NAME.idx)")
      ->required()
      ->type_name("NAME");
  command->add_option("--sequences", options->sequences, "How many sequences of each; 0 = all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--sequence", options->sequence, "Tokens of a sequence; 0 = as in training")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--batch", options->batch, "Sequences at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  set_examples(*command,
               "  tetrad eval run --data data/code-heldout\n"
               "  tetrad eval run/checkpoints/step-300 --data data/code-heldout --precision bf16 --json");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
