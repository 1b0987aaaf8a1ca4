// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/export_source.h"

#include <algorithm>
#include <cmath>

#include "tetrad/tokenizer/bpe.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad {

std::string ExportSource::tokenizer_json() const {
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer()))
    return to_tokenizer_json(bpe->definition());
  return tokenizer() != nullptr ? to_tokenizer_json(byte_definition()) : std::string();
}

std::int64_t ExportSource::context() const {
  const std::int64_t trained = sequence();
  if (model().text.context > 0) return std::max(trained, model().text.context);
  if (!model().rope || !model().rope->scaling) return trained;
  const RopeScaling& scaling = *model().rope->scaling;
  return std::max(trained, std::int64_t{std::llround(scaling.factor * double(scaling.original_context))});
}

std::optional<std::int32_t> ExportSource::begin_of_text() const {
  if (const auto& begin = model().text.begin) return static_cast<std::int32_t>(*begin);
  if (tokenizer() == nullptr || tokenizer()->prefix().size() != 1) return std::nullopt;
  return tokenizer()->prefix().front();
}

std::optional<std::int32_t> ExportSource::end_of_text() const {
  if (const auto& end = model().text.end) return static_cast<std::int32_t>(*end);
  const std::vector<std::int32_t> ends = ends_of_text();
  return ends.empty() ? std::nullopt : std::optional(ends.front());
}

std::vector<std::int32_t> ExportSource::ends_of_text() const {
  const std::vector<std::int64_t>& ends = model().text.ends;
  if (!ends.empty()) return {ends.begin(), ends.end()};
  const auto separator = tokenizer() != nullptr ? tokenizer()->end_of_document() : std::nullopt;
  return separator ? std::vector{*separator} : std::vector<std::int32_t>{};
}

}  // namespace tetrad
