// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/loaded_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tetrad/checkpoint/checkpoint_store.h"
#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/io/safetensors.h"
#include "tetrad/model/parameter_table.h"

namespace tetrad {

PrecisionConfig with_precision(PrecisionConfig trained, const std::string& wanted) {
  if (wanted == "trained") return trained;
  PrecisionConfig precision;
  precision.recipe = wanted == "f32" ? "bf16" : wanted;
  precision.high_precision = std::move(trained.high_precision);
  precision.storage = wanted == "f32" ? "f32" : "bf16";
  return precision;
}

void check_claims(const std::filesystem::path& checkpoint) {
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format("{} cannot be used: {}", checkpoint.string(), what), ExitCode::no_checkpoint);
  };
  load_state(checkpoint);
  const std::vector<std::string> files = {(checkpoint / "config.yaml").string()};
  const ModelConfig model = load_config(files, {}).model;
  validate(model);
  const SafetensorsFile weights(checkpoint / "model.safetensors");
  for (const ParameterSpec& parameter : model_parameters(model)) {
    const TensorInfo* found = weights.find(parameter.full_name());
    if (found == nullptr)
      refuse(fmt::format("its config.yaml describes a model with {}, which is not in model.safetensors",
                         parameter.full_name()));
    if (found->shape != parameter.shape)
      refuse(fmt::format("{} is [{}] in model.safetensors, but [{}] by config.yaml", parameter.full_name(),
                         fmt::join(found->shape, ", "), fmt::join(parameter.shape, ", ")));
  }
}

OpenCheckpoint find_checkpoint(const std::filesystem::path& path, Display* display) {
  std::vector<CheckpointProblem> problems;
  OpenCheckpoint found = open_checkpoint(path, problems);
  for (const CheckpointProblem& problem : problems)
    if (display != nullptr)
      display->say(fmt::format("checkpoint {} cannot be used: {}", problem.path.string(), problem.what));
  check_claims(found.path());
  return found;
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / "tokenizer.json";
  if (std::filesystem::exists(file)) return load_tokenizer(file.string());
  if (load_state(checkpoint).tokenizer_hash == ByteTokenizer().hash()) return load_tokenizer("bytes");
  return nullptr;
}

LoadedModel::LoadedModel(const std::filesystem::path& checkpoint, const LoadOptions& options,
                         Backend& backend)
    : checkpoint_(find_checkpoint(checkpoint, options.display)) {
  const std::vector<std::string> files = {(path() / "config.yaml").string()};
  config_ = load_config(files, {});
  config_.precision = with_precision(config_.precision, options.precision);
  sequence_ = options.sequence > 0 ? options.sequence : config_.train.sequence;
  recipe_ = std::make_unique<Recipe>(config_.precision, config_.model.blocks());
  decoder_ = std::make_unique<Decoder>(
      backend, config_.model, options.batch, sequence_, storage_type(config_.precision),
      MemoryLevers{.recompute = Recompute::full, .reads_only = options.reads_only});
  load_weights(path(), *decoder_);
  tokenizer_ = tokenizer_of_checkpoint(path());
}

Pass LoadedModel::pass() const {
  Pass pass;
  pass.recipe = recipe_.get();
  pass.seed = config_.train.rounding_seed();
  pass.progress = 1;
  return pass;
}

const Tokenizer& LoadedModel::tokenizer() const {
  TETRAD_CHECK(tokenizer_ != nullptr,
               "{} has no tokenizer, so text cannot be read; give token ids instead (tetrad score --tokens)",
               path().string());
  return *tokenizer_;
}

std::vector<std::int32_t> LoadedModel::ends_of_text() const {
  const std::vector<std::int64_t>& known = config_.model.text.ends;
  std::vector<std::int32_t> ends(known.begin(), known.end());
  const auto separator = tokenizer_ != nullptr ? tokenizer_->end_of_document() : std::nullopt;
  if (separator && std::ranges::find(ends, *separator) == ends.end()) ends.push_back(*separator);
  return ends;
}

}  // namespace tetrad
