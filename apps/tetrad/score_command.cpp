// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "model_commands.h"
#include "terminal.h"
#include "tetrad/eval/score.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/safetensors.h"

namespace tetrad::app {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string tokens;
  std::string logits;
  std::string gradients;
  bool json = false;
};

using Lines = std::vector<std::vector<std::int32_t>>;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

void write_logits(const std::string& path, const Lines& lines, const std::vector<Score>& scores,
                  std::int64_t vocab) {
  std::vector<TensorDeclaration> declarations;
  for (std::size_t i = 0; i < lines.size(); ++i)
    declarations.push_back(
        {fmt::format("line.{}", i), DType::f32, {static_cast<std::int64_t>(lines[i].size()), vocab}});
  const FoldersAbove folders(path);
  SafetensorsWriter writer(path, declarations);
  for (std::size_t i = 0; i < lines.size(); ++i)
    writer.write(fmt::format("line.{}", i), bytes_of(scores[i].logits));
  writer.commit();
}

/// Gradients of the mean loss over all tokens that have a predecessor; all lines must have the same length.
void write_gradients(const ScoreOptions& options, const Lines& lines) {
  const auto length = static_cast<std::int64_t>(lines[0].size()) - 1;
  TETRAD_CHECK(length > 0, "--gradients needs lines of at least two tokens");
  for (const auto& line : lines)
    TETRAD_CHECK(line.size() == lines[0].size(),
                 "--gradients needs lines of one length, not {} and {} tokens", lines[0].size(), line.size());
  const std::unique_ptr<Backend> backend = choose_backend(options.model);
  LoadedModel model(options.model.checkpoint,
                    {.precision = options.model.precision,
                     .batch = std::ssize(lines),
                     .sequence = length,
                     .display = &terminal(),
                     .reads_only = false},
                    *backend);
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  for (const auto& line : lines) {
    inputs.insert(inputs.end(), line.begin(), line.end() - 1);
    targets.insert(targets.end(), line.begin() + 1, line.end());
  }
  std::vector<float> losses(inputs.size());
  Pass pass = model.pass();
  model.decoder().train(pass, inputs, targets, 1.0f / static_cast<float>(inputs.size()), losses);

  std::vector<TensorDeclaration> declarations;
  for (const auto& parameter : model.decoder().parameters())
    declarations.push_back({parameter->name, DType::f32, parameter->shape});
  const FoldersAbove folders(options.gradients);
  SafetensorsWriter writer(options.gradients, declarations);
  for (const auto& parameter : model.decoder().parameters()) {
    Buffer copy;
    writer.write(parameter->name, model.decoder().backend().readable(parameter->gradient.bytes(), copy));
  }
  writer.commit();
}

void run(const ScoreOptions& options) {
  const std::unique_ptr<Backend> backend = choose_backend(options.model);
  LoadedModel model = load_model(options.model, *backend);
  const std::int64_t vocab = model.config().model.vocab;
  const Lines lines = read_token_lines(options.tokens, vocab);
  std::vector<Score> scores;
  nlohmann::json results = nlohmann::json::array();
  for (const auto& line : lines) {
    scores.push_back(score(model.decoder(), model.pass(), line,
                           options.logits.empty() ? KeepLogits::no : KeepLogits::yes));
    double sum = 0;
    nlohmann::json values = {nullptr};
    for (const double value : scores.back().log_probabilities) {
      values.push_back(value);
      sum += value;
    }
    results.push_back({{"tokens", line}, {"logprobs", values}, {"sum", sum}});
    if (!options.json) fmt::print("{:.6f}  {} tokens\n", sum, line.size());
  }
  if (!options.logits.empty()) write_logits(options.logits, lines, scores, vocab);
  if (!options.gradients.empty()) write_gradients(options, lines);
  if (options.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"checkpoint", model.path().string()}, {"lines", results}}));
}

}  // namespace

void add_score(CLI::App& app, Action& action) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* command = app.add_subcommand("score", "Log-probability of each given token");
  add_model_options(*command, options->model);
  command->add_option("--tokens", options->tokens, "Lines of token ids; - reads standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--logits", options->logits,
                   "Also write the logits of each line (tensors line.0, line.1, …)")
      ->type_name("FILE.safetensors");
  command
      ->add_option("--gradients", options->gradients,
                   "Also write the gradient of the mean loss with respect to every parameter")
      ->type_name("FILE.safetensors");
  command->add_flag("--json", options->json, "Print one JSON object instead of text");
  set_examples(*command,
               "  echo '104 101 108 108 111' | tetrad score run --tokens - --json\n"
               "  tetrad score run --tokens ids.txt --logits logits.safetensors --precision f32");
  command->callback([options, &action] {
    action = [options] {
      run(*options);
      return ExitCode::ok;
    };
  });
}

}  // namespace tetrad::app
