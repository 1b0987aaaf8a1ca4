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
#include "tetrad/config/hf_model.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/error.h"
#include "tetrad/interchange/checkpoint_source.h"
#include "tetrad/interchange/gguf_source.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/interchange/hf_text.h"
#include "tetrad/interchange/piece_source.h"
#include "tetrad/io/sha256.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;

/// Longer sequences must be asked for: the memory of an evaluation grows with them.
constexpr std::int64_t kMaxDefaultSequence = 4096;

/// What describes an imported model.
struct ImportedModel {
  Config config;
  std::unique_ptr<Tokenizer> tokenizer;  //!< nullptr: none that we read
  std::string tokenizer_json;            //!< empty also where the tokenizer is that of plain bytes
  std::vector<std::string> warnings;
};

void add_tokenizer(ImportedModel& model, const std::string& text, const std::string& where) {
  try {
    const bool is_bytes = text == to_tokenizer_json(byte_definition());  // what export makes of plain bytes
    std::unique_ptr<Tokenizer> tokenizer =
        is_bytes ? load_tokenizer("bytes") : parse_tokenizer_json(text, where);
    TETRAD_CHECK(tokenizer->vocab() <= model.config.model.vocab,
                 "the tokenizer has {} tokens, the model {}: they do not belong together", tokenizer->vocab(),
                 model.config.model.vocab);
    model.tokenizer = std::move(tokenizer);
    if (!is_bytes) model.tokenizer_json = text;
  } catch (const Error& error) {
    model.warnings.push_back(fmt::format("the tokenizer is left out: {}", error.what()));
  }
}

/// An unknown context (0) is taken for a long one.
std::int64_t default_sequence(std::int64_t context) {
  return context > 0 ? std::min(context, kMaxDefaultSequence) : kMaxDefaultSequence;
}

/// The text of config.json decides what the model computes; nothing else in the folder is guessed from.
ImportedModel read_hf_description(const fs::path& folder) {
  const std::string path = (folder / "config.json").string();
  ImportedModel result;
  result.config.model = read_hf_model(path);
  result.config.precision.recipe = "bf16";
  const fs::path tokenizer = folder / "tokenizer.json";
  std::error_code ignored;
  if (fs::exists(tokenizer, ignored)) {
    const MappedFile file(tokenizer);
    const auto bytes = file.bytes();
    add_tokenizer(result, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                  fmt::format("{:?}", tokenizer.native()));
  }
  ModelConfig& model = result.config.model;
  model.text = read_hf_text(folder, parse_hf_json(config::read_text(path), path), model.vocab,
                            result.tokenizer.get(), result.warnings);
  result.config.train.sequence = default_sequence(model.text.context);
  return result;
}

ImportedModel read_gguf_model(const GgufHeader& header) {
  ImportedModel result;
  result.config.model = read_gguf_model_config(header);
  result.config.precision.recipe = "bf16";
  result.config.train.sequence = default_sequence(result.config.model.text.context);
  if (const std::string tokenizer = gguf_tokenizer_json(header); !tokenizer.empty())
    add_tokenizer(result, tokenizer, header.where);
  else
    result.warnings.emplace_back("the file has no tokenizer, or not one that is read");
  return result;
}

/// The parameters of which the source has a second copy. Everything that can be known without reading values
/// is known then: what is missing, what is too much, what has another shape or type.
std::set<std::string> claim_all(const std::vector<MappedParameter>& parameters, PieceSource& source) {
  std::set<std::string> copied;
  for (const MappedParameter& parameter : parameters) {
    for (const Piece& piece : parameter.pieces) source.claim(piece);
    if (parameter.copy && source.claim_copy(*parameter.copy)) copied.insert(parameter.name);
  }
  source.check_all_claimed();
  return copied;
}

std::vector<float> read_parameter(const MappedParameter& parameter, const PieceSource& source,
                                  bool is_copied) {
  std::vector<float> values(static_cast<std::size_t>(element_count(parameter.shape)));
  const std::int64_t columns = parameter.columns();
  for (const Piece& piece : parameter.pieces)
    source.read(piece, std::span(values).subspan(static_cast<std::size_t>(piece.first_row * columns),
                                                 static_cast<std::size_t>(element_count(piece.shape))));
  if (!is_copied) return values;
  std::vector<float> copy(values.size());
  source.read(*parameter.copy, copy);
  TETRAD_CHECK(copy == values,
               "config.json says that embedding and head are one matrix (tie_word_embeddings), but {} is "
               "another one than {}: correct config.json",
               parameter.copy->names.hf, parameter.pieces.front().names.hf);
  return values;
}

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

ImportSummary write_checkpoint(ImportedModel model, PieceSource& source, const fs::path& out,
                               const ImportOptions& options) {
  const std::vector<MappedParameter> parameters =
      tensor_map(model.config.model, family_of(model.config.model));
  OutputFolder folder(out, options.overwrite, is_import);
  Manifest manifest{0, options.build, {}};
  manifest.files.push_back(write_weights(folder.path(), parameters, source, options.progress));
  manifest.files.push_back(write_text(folder.path(), "config.yaml", to_yaml(model.config)));
  RunState state;
  state.data = nlohmann::json::object();
  state.loss_watch = nlohmann::json::object();
  if (model.tokenizer != nullptr) state.tokenizer_hash = model.tokenizer->hash();
  state.build = options.build;
  manifest.files.push_back(write_text(folder.path(), "state.json", state_text(state)));
  if (!model.tokenizer_json.empty())
    manifest.files.push_back(write_text(folder.path(), "tokenizer.json", model.tokenizer_json));
  std::ranges::sort(manifest.files, {}, &ManifestFile::name);
  write_file_atomically(folder.path() / kManifestName, manifest_text(manifest));
  folder.commit();
  return {model.config.model.name, parameter_count(model.config.model),
          model.tokenizer != nullptr ? model.tokenizer->description() : std::string(),
          std::move(model.warnings)};
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
    ImportedModel model = read_gguf_model(file.header());
    GgufPieceSource source(threads, file, model.config.model);
    return write_checkpoint(std::move(model), source, out, options);
  }
  TETRAD_CHECK(fs::exists(from / "config.json", ignored),
               "{:?} has no config.json: name the folder of a Hugging Face model", from.native());
  HfPieceSource source(threads, from);
  return write_checkpoint(read_hf_description(from), source, out, options);
}

}  // namespace tetrad
