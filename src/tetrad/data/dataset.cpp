// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tetrad/core/error.h"

namespace tetrad {

std::unique_ptr<Tokenizer> tokenizer_of(const TokenFile& file) {
  if (!file.metadata() || file.metadata()->tokenizer.empty()) return nullptr;
  const TokenMetadata& metadata = *file.metadata();
  const std::filesystem::path folder = std::filesystem::path(file.name()).parent_path();
  for (const bool beside : {false, true}) {
    try {
      std::unique_ptr<Tokenizer> tokenizer =
          load_tokenizer(beside ? tokenizer_in_folder(metadata.tokenizer, folder) : metadata.tokenizer);
      if (tokenizer->hash() == metadata.tokenizer_hash) return tokenizer;
    } catch (const Error&) {
      continue;
    }
  }
  return nullptr;
}

TokenSequences::TokenSequences(const std::string& path, std::int64_t sequence, const std::string& what,
                               bool masks_documents)
    : file_(path), sequence_(sequence) {
  TETRAD_CHECK(
      file_.size() > sequence,
      "{}: {:?} has {} tokens, too few for one sequence of {} (and the token that follows it): choose "
      "shorter sequences or more data",
      what, file_.name(), file_.size(), sequence);
  if (!masks_documents) return;
  TETRAD_CHECK(
      file_.knows_documents(),
      "{}: {:?} does not say where documents end, which data.document_mask needs: convert it (tetrad "
      "data convert --document-end ID), or set data.document_mask=false",
      what, file_.name());
  document_ends_ = file_.document_ends();
}

void TokenSequences::read(std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                          std::span<std::int32_t> document_starts) const {
  if (index < 0 || index >= count() || std::ssize(inputs) != sequence_ || std::ssize(targets) != sequence_ ||
      std::ssize(document_starts) != (masks_documents() ? sequence_ : 0))
    throw Error(fmt::format("sequence {} of {:?} does not exist or does not fit; this is a bug of the caller",
                            index, file_.name()),
                ExitCode::failure);
  file_.read(index * sequence_, inputs);
  file_.read(index * sequence_ + 1, targets);
  if (!masks_documents()) return;
  const std::int64_t first = index * sequence_;
  auto end = std::ranges::upper_bound(document_ends_, first);
  std::int32_t start = 0;
  for (std::int32_t t = 0; t < sequence_; ++t) {
    if (first + t == *end) {  // so this token begins a document, which has at least one
      start = t;
      ++end;
    }
    document_starts[static_cast<std::size_t>(t)] = start;
  }
}

std::optional<double> TokenSequences::bytes_per_token() const {
  const auto& metadata = file_.metadata();
  if (!metadata || metadata->bytes == 0) return std::nullopt;
  return static_cast<double>(metadata->bytes) / static_cast<double>(metadata->tokens);
}

std::optional<double> TokenSequences::entropy() const {
  return file_.metadata() ? file_.metadata()->entropy : std::nullopt;
}

Dataset::Dataset(Threads& threads, const DataConfig& config, const DatasetOptions& options)
    : sequence_(options.sequence), masks_documents_(config.document_mask) {
  TETRAD_CHECK(options.sequence > 0, "a sequence cannot have {} tokens: set train.sequence",
               options.sequence);
  TETRAD_CHECK(options.vocab > 0, "a vocabulary cannot have {} tokens: set model.vocab", options.vocab);
  TETRAD_CHECK(!config.sources.empty(), "data.sources is empty: name at least one token file");
  open_sources(threads, config, options);
  check_tokenizers(config);
  make_mixture(config, options);
}

void Dataset::open_sources(Threads& threads, const DataConfig& config, const DatasetOptions& options) {
  const auto open = [&](const std::string& path, const std::string& name) {
    const std::string what = "data.sources." + name;
    auto tokens = std::make_unique<TokenSequences>(path, options.sequence, what, config.document_mask);
    const auto& metadata = tokens->file().metadata();
    TETRAD_CHECK(
        !metadata || metadata->vocab <= options.vocab,
        "{}: {:?} was made with a vocabulary of {} tokens, but the model has only {}: set model.vocab to "
        "at least {}",
        what, path, metadata->vocab, options.vocab, metadata->vocab);
    hashes_[name] = tokens->file().validate(threads, options.vocab);
    return tokens;
  };
  for (const auto& [name, source] : config.sources) {
    TETRAD_CHECK(!source.path.empty(), "data.sources.{} has no path", name);
    Source& opened = sources_[name];
    opened.train = open(source.path, name);
    if (!source.heldout.empty()) opened.heldout = open(source.heldout, name + ".heldout");
    names_.push_back(name);
  }
  TETRAD_CHECK(
      !config.document_mask ||
          std::ranges::any_of(sources_,
                              [](const auto& entry) { return entry.second.train->file().documents() > 1; }),
      "data.document_mask is set, but each source is a single document, so that there is nothing to "
      "mask: prepare the data so that texts are files of their own, name the token that ends a "
      "document (tetrad data convert --document-end ID), or set data.document_mask=false");
}

void Dataset::check_tokenizers(const DataConfig& config) {
  std::string who;  // the file that tokenizer_hash_ comes from
  if (!config.tokenizer.empty()) {
    tokenizer_ = load_tokenizer(config.tokenizer);
    tokenizer_hash_ = tokenizer_->hash();
    who = config.tokenizer;
  }
  for (const auto& [name, source] : sources_) {
    for (const TokenSequences* tokens : {source.train.get(), source.heldout.get()}) {
      if (tokens == nullptr || !tokens->file().metadata()) continue;
      const std::string& hash = tokens->file().metadata()->tokenizer_hash;
      if (hash.empty()) continue;
      if (tokenizer_hash_.empty()) {
        tokenizer_hash_ = hash;
        who = tokens->file().name();
        tokenizer_ = tokenizer_of(tokens->file());
      }
      TETRAD_CHECK(
          hash == tokenizer_hash_,
          "data.sources.{}: {:?} was made with another tokenizer ({}) than {:?} ({}): prepare them with the "
          "same one",
          name, tokens->file().name(), hash, who, tokenizer_hash_);
    }
  }
}

void Dataset::make_mixture(const DataConfig& config, const DatasetOptions& options) {
  std::vector<MixtureSource> sources;
  for (const std::string& name : names_) sources.push_back({name, sources_.at(name).train->count()});
  std::vector<MixturePhase> phases;
  if (config.phases.empty()) {
    MixturePhase& all = phases.emplace_back();
    for (const MixtureSource& source : sources) all.weights.push_back(static_cast<double>(source.samples));
  }
  for (std::size_t i = 0; i < config.phases.size(); ++i) {
    MixturePhase& phase = phases.emplace_back();
    phase.until = config.phases[i].until;
    phase.weights.resize(names_.size());
    TETRAD_CHECK(!config.phases[i].mix.empty(), "data.phases[{}].mix is empty: give each source its weight",
                 i);
    for (const auto& [name, weight] : config.phases[i].mix) {
      const auto found = std::ranges::find(names_, name);
      TETRAD_CHECK(found != names_.end(),
                   "data.phases[{}].mix names {:?}, which is not one of the sources ({})", i, name,
                   fmt::join(names_, ", "));
      TETRAD_CHECK(
          std::isfinite(weight) && weight > 0,
          "data.phases[{}].mix.{} is {}; a weight is greater than 0 (leave the source out if unwanted)", i,
          name, weight);
      phase.weights[static_cast<std::size_t>(found - names_.begin())] = weight;
    }
  }
  mixture_ = std::make_unique<Mixture>(std::move(sources), std::move(phases), options.samples, options.seed);
}

void Dataset::next(std::int64_t sequences, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                   std::span<std::int32_t> document_starts) {
  if (sequences < 0 || std::ssize(inputs) != sequences * sequence_ || inputs.size() != targets.size() ||
      document_starts.size() != (masks_documents_ ? inputs.size() : 0))
    throw Error("a batch has the wrong size; this is a bug of the caller", ExitCode::failure);
  const auto length = static_cast<std::size_t>(sequence_);
  for (std::size_t row = 0; row < static_cast<std::size_t>(sequences); ++row) {
    const Sample sample = mixture_->next();
    const std::string& name = names_[static_cast<std::size_t>(sample.source)];
    sources_.at(name).train->read(
        sample.index, inputs.subspan(row * length, length), targets.subspan(row * length, length),
        masks_documents_ ? document_starts.subspan(row * length, length) : std::span<std::int32_t>());
  }
}

const TokenSequences& Dataset::source(const std::string& name) const {
  const auto found = sources_.find(name);
  TETRAD_CHECK(found != sources_.end(), "there is no data source {:?}; valid names: {}", name,
               fmt::join(names_, ", "));
  return *found->second.train;
}

const TokenSequences* Dataset::heldout(const std::string& name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() ? nullptr : found->second.heldout.get();
}

nlohmann::json Dataset::state() const {
  nlohmann::json json;
  to_json(json, mixture_->state());
  return json;
}

void Dataset::restore(const nlohmann::json& state) {
  MixtureState parsed;
  from_json(state, parsed);
  mixture_->restore(parsed);
}

}  // namespace tetrad
