// Any text is a tokenizer.json that gives a working tokenizer, or refused as bad input.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tetrad/core/error.h"
#include "tetrad/tokenizer/tokenizer_json.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = tetrad::parse_tokenizer_json(text, "fuzzed");
    constexpr std::string_view kSample = "It's 1234 <a> <b>\n\n caf\u00e9 \u6f22 \xFF";
    const auto ids = tokenizer->encode(kSample);
    for (const std::int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocab()) std::abort();
    tokenizer->decode(ids);
    // What it is can be written, and is the same when it is read again.
    const auto again =
        tetrad::parse_tokenizer_json(tetrad::to_tokenizer_json(tokenizer->definition()), "written");
    if (again->hash() != tokenizer->hash() || again->encode(kSample) != ids) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
