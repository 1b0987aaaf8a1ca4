// SPDX-License-Identifier: Apache-2.0
// Any bytes are a GGUF file whose tensors lie within it, or refused; what it says of a model and of a
// tokenizer is one that can be built, or refused.

#include <optional>

#include "fuzz/targets.h"
#include "support/files.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::testing {

void fuzz_gguf(std::string_view bytes) {
  std::optional<GgufHeader> header;
  read_or_refuse([&] { header = parse_gguf(bytes_of(bytes), "fuzzed"); });
  if (!header) return;
  for (const auto& [name, place] : header->tensors)
    require(place.begin <= bytes.size() && place.bytes <= bytes.size() - place.begin);
  read_or_refuse([&] {
    const ModelConfig model = read_gguf_model_config(*header);
    require(parameter_count(model) > 0 && model.text.context > 0);
  });
  const std::string tokenizer = gguf_tokenizer_json(*header);
  if (!tokenizer.empty()) read_or_refuse([&] { parse_tokenizer_json(tokenizer, "fuzzed"); });
}

}  // namespace tetrad::testing
