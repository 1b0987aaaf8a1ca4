// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tetrad/interchange/hf_config.h"
#include "tetrad/io/atomic_file.h"
#include "tetrad/io/json_text.h"
#include "tetrad/io/mapped_file.h"
#include "tetrad/tokenizer/bpe.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Says where the folder comes from, and so that it is ours.
constexpr const char* kOriginFile = "tetrad_export.json";

void write_json(const fs::path& path, const Json& json) {
  write_file_atomically(path, json_text(json, 2) + "\n");
}

void take_over(const fs::path& from, const fs::path& to) {
  const MappedFile file(from);
  const std::span<const std::byte> bytes = file.bytes();
  write_file_atomically(to, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void write_tokenizer(const fs::path& folder, const ExportSource& source) {
  const std::vector<fs::path> files = source.text_files();
  for (const fs::path& file : files) take_over(file, folder / file.filename());
  if (!files.empty()) return;
  const std::string text = source.tokenizer_json();
  if (text.empty()) return;
  write_file_atomically(folder / "tokenizer.json", text);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"model_max_length", source.context()}};
  // With plain bytes the separator is byte 0, whose spelling would be found in texts if it were special.
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(source.tokenizer())) {
    const auto name = [&](const char* key, const std::optional<std::int32_t>& id) {
      const std::vector<AddedToken>& added = bpe->definition().added;
      const auto found = id ? std::ranges::find(added, *id, &AddedToken::id) : added.end();
      if (found != added.end()) config[key] = found->content;
    };
    name("bos_token", source.begin_of_text());
    name("eos_token", source.end_of_text());
  }
  write_json(folder / "tokenizer_config.json", config);
}

/// Whether export wrote this folder, so that it may be replaced.
bool is_export(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kOriginFile, ignored);
}

}  // namespace

void check_export_folder(const fs::path& out, Overwrite overwrite) {
  OutputFolder::check(out, overwrite, is_export);
}

ExportSummary export_hf_folder(const ExportSource& source, const fs::path& out, const ExportOptions& options,
                               PieceEncoder& encoder, const Json& extra_files,
                               const Json& quantization_config, std::vector<std::string> warnings) {
  std::vector<TensorDeclaration> declarations;
  for (const MappedParameter& parameter : source.parameters())
    for (TensorDeclaration& tensor : encoder.declare(parameter)) declarations.push_back(std::move(tensor));

  OutputFolder folder(out, options.overwrite, is_export);
  ShardedWriter writer(folder.path(), declarations, options.shard_bytes);
  std::int64_t done = 0;
  for (const MappedParameter& parameter : source.parameters()) {
    encoder.write(parameter, source.values(parameter), writer);
    if (options.progress) options.progress(++done, std::ssize(source.parameters()));
  }
  writer.commit();

  const HfConfigOptions hf{source.context(), options.dtype, source.begin_of_text(), source.ends_of_text()};
  Json model = hf_config(source.model(), source.family(), hf);
  if (!quantization_config.is_null()) model["quantization_config"] = quantization_config;
  write_json(folder.path() / "config.json", model);
  write_json(folder.path() / "generation_config.json", hf_generation_config(hf));
  for (const auto& [name, json] : extra_files.items()) write_json(folder.path() / name, json);
  write_tokenizer(folder.path(), source);
  Json origin = {{"producer", "tetrad"}, {"version", options.version}, {"model", source.model().name}};
  if (!source.origin().empty()) origin["checkpoint"] = source.origin();
  warnings.insert(warnings.begin(), options.warnings.begin(), options.warnings.end());
  if (!warnings.empty()) origin["warnings"] = warnings;
  write_json(folder.path() / kOriginFile, origin);
  folder.commit();
  return {declarations.size(), writer.shards(), writer.total_bytes(), std::move(warnings)};
}

ExportSummary export_hf(Threads& threads, const ExportSource& source, const fs::path& out,
                        const ExportOptions& options) {
  DenseEncoder encoder(threads, options.dtype);
  return export_hf_folder(source, out, options, encoder, nullptr, nullptr, {});
}

}  // namespace tetrad
