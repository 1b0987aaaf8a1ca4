// SPDX-License-Identifier: Apache-2.0
// Any text is a tokenizer.json that gives a working tokenizer, or refused.

#include "fuzz/targets.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace tetrad::testing {

void fuzz_tokenizer_json(std::string_view bytes) {
  constexpr std::string_view kSample = "It's 1234 <a> <b>\n\n caf\u00e9 \u6f22 e\u0301 \xFF";
  read_or_refuse([&] {
    const auto tokenizer = parse_tokenizer_json(bytes, "fuzzed");
    const auto ids = tokenizer->encode(kSample);
    for (const std::int32_t id : ids) require(id >= 0 && id < tokenizer->vocab());
    tokenizer->decode(ids);
    // What it is can be written, and is the same when it is read again.
    const auto again = parse_tokenizer_json(to_tokenizer_json(tokenizer->definition()), "written");
    require(again->hash() == tokenizer->hash() && again->encode(kSample) == ids);
  });
}

}  // namespace tetrad::testing
