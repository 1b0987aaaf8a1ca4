// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data_command.h"
#include "progress.h"
#include "tetrad/core/error.h"
#include "tetrad/data/convert.h"
#include "tetrad/data/prepare.h"
#include "tetrad/data/token_file.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"

namespace tetrad::app {
namespace {

nlohmann::json report(const std::string& name, const TokenMetadata& metadata) {
  nlohmann::json object = nlohmann::json::parse(to_json_text(metadata));
  object["name"] = name;
  return object;
}

void print(const std::string& name, const TokenMetadata& metadata) {
  fmt::print("{:<24} {:>12} tokens {:>8} documents  unigram entropy {:.4f} nats", name, metadata.tokens,
             metadata.documents, metadata.unigram_entropy);
  if (metadata.bytes > 0 && metadata.tokens > 0)
    fmt::print("  {:.2f} bytes/token",
               static_cast<double>(metadata.bytes) / static_cast<double>(metadata.tokens));
  if (metadata.entropy) fmt::print("  entropy {:.4f} nats", *metadata.entropy);
  fmt::print("\n");
}

void print_json(const nlohmann::json& object) { fmt::print("{}\n", json_text(object, 2)); }

TokenMetadata write_synth(const std::string& name, const SynthConfig& config, std::int64_t tokens) {
  const std::unique_ptr<SynthSource> source = make_synth(config);
  const FoldersAbove folders(name);
  TokenFileWriter writer(name, source->vocab());
  std::vector<std::int32_t> buffer(std::size_t{1} << 20);
  for (std::int64_t done = 0; done < tokens;) {
    const auto part = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::int64_t>(tokens - done, std::ssize(buffer))));
    source->generate(part);
    writer.append(part);
    done += std::ssize(part);
    show_progress(name, done, tokens);
  }
  TokenMetadata metadata;
  metadata.kind = config.kind;
  metadata.entropy = source->entropy();
  metadata.parameters = source->parameters();
  metadata.parameters["seed"] = static_cast<std::int64_t>(config.seed);
  metadata.parameters["stream"] = config.stream;
  return writer.commit(std::move(metadata));
}

}  // namespace

void data_prepare(const PrepareArguments& arguments) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(arguments.tokenizer);
  const TextFiles files = find_text_files(arguments.paths, arguments.include);
  Threads threads(arguments.threads);
  const PrepareResult result = prepare_tokens(
      threads, files, *tokenizer,
      {.output = arguments.output,
       .tokenizer = arguments.tokenizer,
       .heldout = arguments.heldout,
       .special = arguments.special,
       .progress = [](std::int64_t done, std::int64_t total) { show_progress("encoding", done, total); }});
  const std::string name = token_file_name(arguments.output);
  if (arguments.json) {
    nlohmann::json object = {
        {"train", report(name, result.train)},
        {"files", result.files},
        {"heldout_files", result.heldout_files},
        {"skipped", {{"binary", result.binary}, {"empty", result.empty}, {"symlinks", files.symlinks}}}};
    if (result.heldout) object["heldout"] = report(heldout_name(name), *result.heldout);
    print_json(object);
    return;
  }
  fmt::print("{} files, {}; skipped: {} binary, {} empty, {} symbolic links\n", result.files,
             tokenizer->description(), result.binary, result.empty, files.symlinks);
  print(name, result.train);
  if (result.heldout) print(heldout_name(name), *result.heldout);
}

void data_convert(const ConvertArguments& arguments) {
  constexpr std::int64_t kMaxId = INT32_MAX;
  TETRAD_CHECK(arguments.document_end <= kMaxId, "--document-end {}: no token has such an id",
               arguments.document_end);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty()) tokenizer = load_tokenizer(arguments.tokenizer);
  ConvertOptions options = {
      .output = arguments.output,
      .vocab = arguments.vocab,
      .tokenizer = tokenizer.get(),
      .tokenizer_spec = arguments.tokenizer,
      .document_end = std::nullopt,
      .progress = [](std::int64_t done, std::int64_t total) { show_progress("copying", done, total); }};
  if (arguments.document_end >= 0) options.document_end = static_cast<std::int32_t>(arguments.document_end);
  Threads threads(arguments.threads);
  const TokenMetadata metadata = convert_tokens(threads, arguments.inputs, options);
  const std::string name = token_file_name(arguments.output);
  if (arguments.json)
    print_json(report(name, metadata));
  else
    print(name, metadata);
}

void data_synth(const SynthArguments& arguments) {
  const std::string name = token_file_name(arguments.output);
  SynthConfig config = arguments.config;
  const auto heldout_tokens =
      static_cast<std::int64_t>(arguments.heldout * static_cast<double>(arguments.tokens));
  const TokenMetadata train = write_synth(name, config, arguments.tokens);
  nlohmann::json object = {{"train", report(name, train)}};
  if (!arguments.json) print(name, train);
  if (heldout_tokens > 0) {
    config.stream = 1;
    const TokenMetadata heldout = write_synth(heldout_name(name), config, heldout_tokens);
    object["heldout"] = report(heldout_name(name), heldout);
    if (!arguments.json) print(heldout_name(name), heldout);
  }
  if (arguments.json) print_json(object);
}

}  // namespace tetrad::app
