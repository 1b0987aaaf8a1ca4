// Any bytes are a GGUF file whose tensors lie within it, or refused.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tetrad/core/error.h"
#include "tetrad/interchange/gguf_file.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    for (const auto& [name, place] : tetrad::parse_gguf(file, "fuzz").tensors)
      if (place.begin > size || place.bytes > size - place.begin) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
