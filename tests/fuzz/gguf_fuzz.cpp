// Any bytes are a GGUF file whose tensors lie within it, or refused; what it says of a model and of a
// tokenizer is one that can be built, or refused.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tetrad/core/error.h"
#include "tetrad/interchange/gguf_model.h"
#include "tetrad/interchange/gguf_tokenizer.h"
#include "tetrad/tokenizer/tokenizer_json.h"

namespace {

/// Whether it was refused, as bad input and nothing else.
template <typename Action>
bool is_refused(const Action& action) {
  try {
    action();
    return false;
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
    return true;
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tetrad::GgufHeader header;
  if (is_refused([&] { header = tetrad::parse_gguf(std::as_bytes(std::span(data, size)), "fuzz"); }))
    return 0;
  for (const auto& [name, place] : header.tensors)
    if (place.begin > size || place.bytes > size - place.begin) std::abort();
  is_refused([&] {
    const tetrad::GgufDescription description = tetrad::read_gguf_description(header);
    if (tetrad::parameter_count(description.model) <= 0 || description.context <= 0) std::abort();
  });
  const std::string tokenizer = tetrad::gguf_tokenizer_json(header);
  if (!tokenizer.empty()) is_refused([&] { tetrad::parse_tokenizer_json(tokenizer, "fuzz"); });
  return 0;
}
