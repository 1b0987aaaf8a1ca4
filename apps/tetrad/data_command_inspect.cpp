// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "data_command.h"
#include "tetrad/data/dataset.h"
#include "tetrad/io/json_text.h"
#include "tetrad/tokenizer/unicode.h"

namespace tetrad::app {
namespace {

/// Nothing if the ids are so large that counting each would take much memory.
std::optional<double> measured_unigram_entropy(const TokenFile& file, std::int64_t highest) {
  constexpr std::int64_t kMaxIds = std::int64_t{1} << 24;
  if (highest >= kMaxIds) return std::nullopt;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(highest + 1));
  std::vector<std::int32_t> buffer(std::size_t{1} << 20);
  for (std::int64_t first = 0; first < file.size(); first += std::ssize(buffer)) {
    const auto part = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(buffer), file.size() - first)));
    file.read(first, part);
    for (const std::int32_t id : part) ++counts[static_cast<std::size_t>(id)];
  }
  return unigram_entropy(counts);
}

}  // namespace

void data_inspect(const InspectArguments& arguments) {
  constexpr std::int64_t kShown = 64;
  const TokenFile file(arguments.name);
  const auto& metadata = file.metadata();
  Threads threads(arguments.threads);
  const TokenFile::Range range = file.survey(threads).range;
  const std::int64_t any = std::int64_t{1} << 31;
  const std::int64_t vocab = arguments.vocab > 0 ? arguments.vocab : metadata ? metadata->vocab : any;
  file.validate(threads, vocab);
  const std::optional<double> unigram = measured_unigram_entropy(file, range.highest);
  std::vector<std::int32_t> first(static_cast<std::size_t>(std::min(kShown, file.size())));
  file.read(0, first);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(file);
  std::optional<std::string> text;
  if (tokenizer) text = replace_invalid_utf8(tokenizer->decode(first));

  nlohmann::json object = {{"name", file.name()},
                           {"format", name_of(file.format())},
                           {"tokens", file.size()},
                           {"documents", file.documents()},
                           {"dtype", name_of(file.dtype())},
                           {"lowest_id", range.lowest},
                           {"highest_id", range.highest},
                           {"first_tokens", first}};
  if (unigram) object["unigram_entropy"] = *unigram;
  if (metadata) object["metadata"] = nlohmann::json::parse(to_json_text(*metadata));
  if (text) object["first_text"] = *text;
  if (arguments.json) {
    fmt::print("{}\n", json_text(object, 2));
    return;
  }
  const auto line = [](std::string_view name, const std::string& value) {
    fmt::print("{:<16} {}\n", name, value);
  };
  line("name", file.name());
  line("format", std::string(name_of(file.format())));
  line("tokens", fmt::format("{} in {} documents, {}", file.size(), file.documents(), name_of(file.dtype())));
  line("ids", file.size() > 0 ? fmt::format("{} to {}", range.lowest, range.highest) : "none");
  line("unigram entropy",
       unigram ? fmt::format("{:.4f} nats", *unigram) : "not counted: the ids are too large");
  if (metadata) {
    line("vocabulary", fmt::format("{}", metadata->vocab));
    if (!metadata->tokenizer.empty())
      line("tokenizer", fmt::format("{} ({})", metadata->tokenizer, metadata->tokenizer_hash));
    if (metadata->bytes > 0 && metadata->tokens > 0)
      line("text", fmt::format("{} bytes, {:.3f} per token", metadata->bytes,
                               static_cast<double>(metadata->bytes) / static_cast<double>(metadata->tokens)));
    if (metadata->entropy)
      line("language", fmt::format("{}, entropy {:.4f} nats per token", metadata->kind, *metadata->entropy));
  }
  line("first tokens", text ? fmt::format("{:?}", *text) : fmt::format("{}", fmt::join(first, " ")));
}

}  // namespace tetrad::app
