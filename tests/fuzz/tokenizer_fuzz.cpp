// Any bytes encode to ids that decode to them, whole or in pieces, with every split.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "tetrad/tokenizer/bpe_trainer.h"
#include "tetrad/tokenizer/unicode.h"

namespace {

std::vector<std::unique_ptr<tetrad::BpeTokenizer>> all_tokenizers() {
  const std::string_view text =
      "the cat's hat; That'S 1234 caf\u00e9 \u6f22\u6f22\n\n  the cat's hat; That'S 1234 caf\u00e9";
  const tetrad::BpeDefinition learned = tetrad::train_bpe({&text, 1}, 300);
  std::vector<std::vector<const tetrad::Split*>> splits = {
      {&tetrad::whole_split()}, {&tetrad::digit_split(), &tetrad::gpt2_split()}, {&tetrad::number_split()}};
  for (const tetrad::Split& split : tetrad::regex_splits()) splits.push_back({&split});
  std::vector<std::unique_ptr<tetrad::BpeTokenizer>> result;
  for (const auto& list : splits) {
    tetrad::BpeDefinition definition = learned;
    definition.splits = list;
    result.push_back(std::make_unique<tetrad::BpeTokenizer>(std::move(definition)));
  }
  return result;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tokenizers = all_tokenizers();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : tokenizers) {
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    if (tokenizer->decode(ids) != text) std::abort();
    std::vector<std::int32_t> parts;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t cut = tokenizer->cut(rest, 5);
      const auto part = tokenizer->encode(rest.substr(0, cut));
      parts.insert(parts.end(), part.begin(), part.end());
      rest.remove_prefix(cut);
    }
    if (parts != ids) std::abort();
  }
  const std::string valid = tetrad::replace_invalid_utf8(text);
  if (tetrad::replace_invalid_utf8(valid) != valid) std::abort();
  return 0;
}
