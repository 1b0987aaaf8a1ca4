// Any bytes are a tiktoken file that gives a lossless tokenizer, or refused as bad input.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tetrad/core/error.h"
#include "tetrad/tokenizer/tiktoken.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array<std::string_view, 4> kEncodings = {"cl100k", "o200k", "r50k", "llama3"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = tetrad::parse_tiktoken(text, kEncodings[size % kEncodings.size()], "fuzzed");
    constexpr std::string_view kSample = "It's 1234 <|endoftext|>\n\n caf\u00e9 \u6f22 \xFF";
    if (tokenizer->decode(tokenizer->encode(kSample)) != kSample) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
