// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "model_commands.h"
#include "number_checks.h"
#include "tetrad/eval/checks.h"
#include "tetrad/eval/evaluation.h"
#include "tetrad/io/json_text.h"
#include "tetrad/plot/text.h"

namespace tetrad::app {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::vector<std::string> data;
  std::vector<std::string> choices;
  bool checks = false;
  std::int64_t sequences = 0;
  std::int64_t batch = 8;
  std::int64_t sequence = 0;
  bool json = false;
};

nlohmann::json evaluate_data(LoadedModel& model, const NamedFiles& files, const EvalOptions& options) {
  nlohmann::json results = nlohmann::json::object();
  const Recipe bf16(unquantized(model.config().precision), model.config().model.blocks());
  for (const auto& [name, path] : files) {
    const TokenSequences data(path, model.sequence(), name, model.config().data.document_mask);
    data.file().validate(model.decoder().backend().threads(), model.config().model.vocab);
    Pass pass = model.pass();
    const Evaluation result = evaluate(model.decoder(), pass, data, options.batch, options.sequences);
    std::optional<double> bf16_loss;
    if (quantizes_forward(model.decoder(), *pass.recipe, pass.progress)) {
      pass.recipe = &bf16;
      bf16_loss = evaluate(model.decoder(), pass, data, options.batch, options.sequences).loss;
    }
    nlohmann::json entry = {
        {"loss", result.loss}, {"perplexity", result.perplexity()}, {"tokens", result.tokens}};
    if (result.bits_per_byte) entry["bits_per_byte"] = *result.bits_per_byte;
    if (result.excess_nats) entry["excess_nats"] = *result.excess_nats;
    if (bf16_loss) entry["bf16_loss"] = *bf16_loss;
    results[name] = entry;
    if (options.json) continue;
    fmt::print("{}: loss {:.4f} nats, perplexity {:.3f}", name, result.loss, result.perplexity());
    if (bf16_loss) fmt::print(", loss {:.4f} in BF16", *bf16_loss);
    if (result.bits_per_byte) fmt::print(", {:.4f} bits per byte", *result.bits_per_byte);
    if (result.excess_nats) fmt::print(", {:+.4f} nats over the true entropy", *result.excess_nats);
    fmt::print(" ({} tokens)\n", result.tokens);
  }
  return results;
}

/// The data that was named, or what the run itself held out.
NamedFiles named_or_heldout(const LoadedModel& model, const EvalOptions& options) {
  NamedFiles files;
  for (const std::string& name : options.data) files.emplace_back(name, name);
  if (files.empty()) files = heldout_files(model.config());
  TETRAD_CHECK(!files.empty(), "{} was trained without held-out data: name some with --data",
               options.model.checkpoint);
  return files;
}

void print_checks(const std::vector<CheckResult>& checks) {
  if (checks.empty()) {
    fmt::print("no checks: they need text and the model's tokenizer, or synthetic arithmetic or recall\n");
    return;
  }
  const auto shown = [](const CheckResult& check) { return printable(check.name); };
  std::size_t width = 5;
  for (const CheckResult& check : checks) width = std::max(width, character_count(shown(check)));
  fmt::print("{:<{}}     value  {:<8}  questions\n", "check", width, "unit");
  for (const CheckResult& check : checks) {
    const std::size_t padding = width - character_count(shown(check));
    fmt::print("{}{:{}}  {:>8.4f}  {:<8}  {:>9}\n", shown(check), "", padding, check.value, check.unit,
               check.count);
  }
}

void run(const EvalOptions& options) {
  const bool has_checks = options.checks || !options.choices.empty();
  const bool has_losses = !has_checks || !options.data.empty();
  ChecksConfig config;
  if (options.sequences > 0) config.sequences = options.sequences;
  for (const std::string& file : options.choices) config.choices.push_back(read_questions(file));
  const std::unique_ptr<Backend> backend = choose_backend(options.model);
  LoadedModel model = load_model(options.model, *backend, options.batch, options.sequence);
  const NamedFiles files = has_losses || options.checks ? named_or_heldout(model, options) : NamedFiles();
  nlohmann::json result = {{"checkpoint", model.path().string()},
                           {"data", evaluate_data(model, has_losses ? files : NamedFiles(), options)}};
  if (has_checks) {
    const std::vector<CheckResult> checks = run_checks(model, options.checks ? files : NamedFiles(), config);
    nlohmann::json& list = result["checks"] = nlohmann::json::array();
    for (const CheckResult& check : checks) list.push_back(json_of(check));
    if (!options.json) print_checks(checks);
  }
  if (options.json) fmt::print("{}\n", json_text(result));
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand(
      "eval", "Evaluate a checkpoint: loss, perplexity, bits per byte, and checks of what it can do");
  add_model_options(*command, options->model);
  command
      ->add_option("--data", options->data,
                   "Token files (NAME of NAME.bin and NAME.idx); default: what the run held out")
      ->type_name("NAME");
  command
      ->add_option("--choices", options->choices,
                   "Multiple-choice questions, one JSON object a line: question, choices, answer; may be "
                   "given several times")
      ->allow_extra_args(false)
      ->type_name("FILE.jsonl");
  command->add_flag("--checks", options->checks,
                    "Test brackets and names in code, recall by length and depth, arithmetic by carries, on "
                    "--data or else on the run's held-out data");
  command
      ->add_option("--sequences", options->sequences,
                   "Sequences from each token file; 0 = all, or 32 for --checks")
      ->check(whole_number(0));
  command->add_option("--sequence", options->sequence, "Tokens per sequence; 0 = as in training")
      ->check(whole_number(0));
  command->add_option("--batch", options->batch, "Sequences at a time")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  tetrad eval run\n"
               "  tetrad eval run --data data/code-heldout\n"
               "  tetrad eval run/checkpoints/step-300 --data data/code-heldout --precision bf16 --json\n"
               "  tetrad eval run --checks\n"
               "  tetrad eval run --choices questions.jsonl --json");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
