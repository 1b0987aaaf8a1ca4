// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "model_commands.h"
#include "number_checks.h"
#include "tetrad/eval/sampler.h"
#include "tetrad/io/json_text.h"

namespace tetrad::app {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  std::int64_t tokens = 200;
  SamplingOptions sampling;
  bool json = false;
};

void run(const GenerateOptions& options) {
  const std::unique_ptr<Backend> backend = choose_backend(options.model);
  LoadedModel model = load_model(options.model, *backend);
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<std::int32_t> prompt = tokenizer.encode(options.prompt);
  const std::vector<std::int32_t> ends = model.ends_of_text();
  if (prompt.empty()) {
    const std::optional<std::int32_t> separator = tokenizer.end_of_document();
    TETRAD_CHECK(separator.has_value(), "the prompt is empty: give some text with --prompt");
    prompt.push_back(*separator);  // a document begins
  }
  Session session = model.decoder().start(static_cast<std::int64_t>(prompt.size()) + options.tokens);
  Pass pass = model.pass();
  std::vector<float> logits = model.decoder().extend(pass, session, prompt, true);
  if (!options.json) fmt::print("{}", options.prompt);

  std::vector<std::int32_t> generated;
  while (static_cast<std::int64_t>(generated.size()) < options.tokens) {
    const std::int32_t next = sample(logits, options.sampling, static_cast<std::uint64_t>(session.length()));
    if (std::ranges::find(ends, next) != ends.end()) break;
    generated.push_back(next);
    if (!options.json) {
      fmt::print("{}", tokenizer.decode(std::span(&next, 1)));
      std::fflush(stdout);
    }
    logits = model.decoder().extend(pass, session, std::span(&next, 1), true);
  }
  if (!options.json) {
    fmt::print("\n");
    return;
  }
  const std::string text = tokenizer.decode(generated);
  fmt::print("{}\n",
             json_text(nlohmann::json{{"prompt", options.prompt}, {"text", text}, {"tokens", generated}}));
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  add_model_options(*command, options->model);
  command->add_option("--prompt", options->prompt, "The text to continue; empty: a new document")
      ->type_name("TEXT");
  command->add_option("--tokens", options->tokens, "Largest number of tokens to generate")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "Sampling temperature; 0 always takes the likeliest token")
      ->check(number_between(0, 100))
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Sample from the k likeliest tokens; 0 = all")
      ->check(whole_number(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "Sample from the likeliest tokens with this total probability")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "The same seed gives the same text")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  set_examples(
      *command,
      "  tetrad generate run --prompt 'template <typename T>'\n"
      "  tetrad generate run --prompt 'class ' --temperature 0.7 --top-k 40 --seed 3 --precision nvfp4");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
