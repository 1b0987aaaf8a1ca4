// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/checks.h"

#include <nlohmann/json.hpp>

#include "tetrad/eval/long_recall.h"
#include "tetrad/eval/token_checks.h"

namespace tetrad {

nlohmann::json json_of(const CheckResult& check) {
  return {{"name", check.name}, {"value", check.value}, {"unit", check.unit}, {"count", check.count}};
}

NamedFiles heldout_files(const Config& config) {
  NamedFiles files;
  for (const auto& [name, source] : config.data.sources)
    if (!source.heldout.empty()) files.emplace_back(name, source.heldout);
  return files;
}

std::vector<CheckResult> run_checks(LoadedModel& model, const NamedFiles& heldout,
                                    const ChecksConfig& config) {
  const Pass pass = model.pass();
  const auto scorer_that = [&](KeepLogits keep) -> Scorer {
    return [&model, &pass, keep](std::span<const std::int32_t> tokens) {
      return score(model.decoder(), pass, tokens, keep);
    };
  };
  const Scorer scorer = scorer_that(KeepLogits::no);
  const Tokenizer* tokenizer = model.has_tokenizer() ? &model.tokenizer() : nullptr;
  std::vector<CheckResult> results;
  const auto add = [&](const std::vector<CheckResult>& more) {
    results.insert(results.end(), more.begin(), more.end());
  };
  for (const auto& [name, path] : heldout) {
    const TokenSequences data(path, model.sequence(), name);
    data.file().validate(model.decoder().backend().threads(), model.config().model.vocab);
    const bool is_text = !data.file().metadata() || data.file().metadata()->kind.empty();
    add(check_tokens(name, data, tokenizer, config.sequences, scorer_that(KeepLogits::yes)));
    if (is_text && tokenizer != nullptr)
      add(check_long_recall(name, data, *tokenizer, config.recall_trials, scorer));
  }
  for (const Quiz& quiz : config.choices) add(check_choices(quiz, model.tokenizer(), scorer));
  return results;
}

}  // namespace tetrad
