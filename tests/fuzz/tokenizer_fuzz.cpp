// SPDX-License-Identifier: Apache-2.0
// Any bytes encode to ids that decode to them, whole or in pieces, with every split.

#include <memory>
#include <vector>

#include "fuzz/targets.h"
#include "tetrad/tokenizer/bpe_trainer.h"
#include "tetrad/tokenizer/unicode.h"

namespace tetrad::testing {
namespace {

std::vector<std::unique_ptr<BpeTokenizer>> all_tokenizers() {
  const std::string_view text =
      "the cat's hat; That'S 1234 caf\u00e9 \u6f22\u6f22\n\n  the cat's hat; That'S 1234 caf\u00e9";
  const BpeDefinition learned = train_bpe({&text, 1}, 300);
  std::vector<std::vector<const Split*>> splits = {
      {&whole_split()}, {&digit_split(), &gpt2_split()}, {&number_split()}};
  for (const Split& split : regex_splits()) splits.push_back({&split});
  std::vector<std::unique_ptr<BpeTokenizer>> result;
  for (const auto& list : splits) {
    BpeDefinition definition = learned;
    definition.splits = list;
    result.push_back(std::make_unique<BpeTokenizer>(std::move(definition)));
  }
  return result;
}

}  // namespace

void fuzz_tokenizer(std::string_view bytes) {
  static const auto tokenizers = all_tokenizers();
  for (const auto& tokenizer : tokenizers) {
    const std::vector<std::int32_t> ids = tokenizer->encode(bytes);
    require(tokenizer->decode(ids) == bytes);
    std::vector<std::int32_t> parts;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t cut = tokenizer->cut(rest, 5);
      const auto part = tokenizer->encode(rest.substr(0, cut));
      parts.insert(parts.end(), part.begin(), part.end());
      rest.remove_prefix(cut);
    }
    require(parts == ids);
  }
  const std::string valid = replace_invalid_utf8(bytes);
  require(replace_invalid_utf8(valid) == valid);
}

}  // namespace tetrad::testing
