// SPDX-License-Identifier: Apache-2.0
// Any bytes are a tiktoken file that gives a lossless tokenizer, or refused.

#include <array>

#include "fuzz/targets.h"
#include "tetrad/tokenizer/tiktoken.h"

namespace tetrad::testing {

void fuzz_tiktoken(std::string_view bytes) {
  constexpr std::array<std::string_view, 4> kEncodings = {"cl100k", "o200k", "r50k", "llama3"};
  constexpr std::string_view kSample = "It's 1234 <|endoftext|>\n\n caf\u00e9 \u6f22 \xFF";
  read_or_refuse([&] {
    const auto tokenizer = parse_tiktoken(bytes, kEncodings[bytes.size() % kEncodings.size()], "fuzzed");
    require(tokenizer->decode(tokenizer->encode(kSample)) == kSample);
  });
}

}  // namespace tetrad::testing
