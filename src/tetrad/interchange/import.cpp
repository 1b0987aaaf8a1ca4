// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/import.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "tetrad/checkpoint/checkpoint_folder.h"
#include "tetrad/checkpoint/snapshot.h"
#include "tetrad/config/config.h"
#include "tetrad/core/error.h"
#include "tetrad/interchange/gguf_source.h"
#include "tetrad/interchange/model_description.h"
#include "tetrad/interchange/piece_source.h"
#include "tetrad/interchange/tensor_folder.h"
#include "tetrad/io/sha256.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

ManifestFile write_weights(const fs::path& folder, const std::vector<MappedParameter>& parameters,
                           PieceSource& source, const Progress& progress) {
  const std::set<std::string> copied = claim_all(parameters, source);
  std::vector<TensorDeclaration> declarations;
  std::map<std::string, const MappedParameter*> by_name;
  for (const MappedParameter& parameter : parameters) {
    declarations.push_back({parameter.name, DType::f32, parameter.shape});
    by_name[parameter.name] = &parameter;
  }
  const std::string name = "model.safetensors";
  Sha256 hash;
  SafetensorsWriter writer(folder / name, declarations, {}, &hash);
  std::int64_t done = 0;
  for (const std::string& tensor : writer.data_order()) {
    const std::vector<float> values = read_parameter(*by_name.at(tensor), source, copied.contains(tensor));
    writer.write(tensor, std::as_bytes(std::span(values)));
    if (progress) progress(++done, std::ssize(declarations));
  }
  writer.commit();
  return {name, hash.size(), {hash.hex()}};
}

ManifestFile write_text(const fs::path& folder, const std::string& name, const std::string& text) {
  write_file_atomically(folder / name, text);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return {name, hash.size(), {hash.hex()}};
}

/// A checkpoint of a run has the optimizer's state too, and is not to be replaced by an import.
bool is_import(const fs::path& folder) {
  std::error_code ignored;
  return looks_complete(folder) && !fs::exists(folder / "optimizer.safetensors", ignored);
}

/// As a run would have said it.
Config config_of(const ModelDescription& description) {
  Config config;
  config.model = description.model;
  config.precision.recipe = "bf16";
  config.train.sequence = description.sequence;
  return config;
}

ImportSummary write_checkpoint(const ModelDescription& described, PieceSource& source, const fs::path& out,
                               const ImportOptions& options) {
  const std::vector<MappedParameter> parameters = tensor_map(described.model, family_of(described.model));
  OutputFolder folder(out, options.overwrite, is_import);
  Manifest manifest{0, options.build, {}};
  manifest.files.push_back(write_weights(folder.path(), parameters, source, options.progress));
  manifest.files.push_back(write_text(folder.path(), "config.yaml", to_yaml(config_of(described))));
  RunState state;
  state.data = nlohmann::json::object();
  state.loss_watch = nlohmann::json::object();
  if (described.tokenizer != nullptr) state.tokenizer_hash = described.tokenizer->hash();
  state.build = options.build;
  manifest.files.push_back(write_text(folder.path(), "state.json", state_text(state)));
  if (!described.tokenizer_json.empty())
    manifest.files.push_back(write_text(folder.path(), "tokenizer.json", described.tokenizer_json));
  std::ranges::sort(manifest.files, {}, &ManifestFile::name);
  write_file_atomically(folder.path() / kManifestName, manifest_text(manifest));
  folder.commit();
  std::vector<std::string> warnings = described.warnings;
  if (!described.no_tokenizer.empty()) warnings.insert(warnings.begin(), described.no_tokenizer);
  return {described.model.name, parameter_count(described.model),
          described.tokenizer != nullptr ? described.tokenizer->description() : std::string(),
          std::move(warnings)};
}

}  // namespace

ImportSummary import_checkpoint(Threads& threads, const fs::path& from, const fs::path& out,
                                const ImportOptions& options) {
  const CheckpointEntry entry = parse_entry(out.has_filename() ? out : out.parent_path());
  TETRAD_CHECK(entry.step <= 0, "an import is step 0, but {:?} is the name of another: choose another name",
               out.native());
  std::error_code ignored;
  if (!fs::is_directory(from, ignored)) {
    TETRAD_CHECK(fs::exists(from, ignored),
                 "{:?} does not exist: name a folder with config.json and safetensors, or a GGUF file",
                 from.native());
    const GgufFile file(from);
    const ModelDescription described = read_gguf_description(file.header());
    GgufPieceSource source(threads, file, described.model);
    return write_checkpoint(described, source, out, options);
  }
  TETRAD_CHECK(fs::exists(from / "config.json", ignored),
               "{:?} has no config.json: name the folder of a Hugging Face model", from.native());
  const TensorFolder tensors(from);
  HfPieceSource source(threads, tensors);
  return write_checkpoint(read_hf_description(from), source, out, options);
}

}  // namespace tetrad
