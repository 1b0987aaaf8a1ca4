// Any bytes are a safetensors file whose tensors fill its data, or refused.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tetrad/core/error.h"
#include "tetrad/io/safetensors_header.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    const tetrad::SafetensorsHeader header = tetrad::parse_safetensors_header(file, "fuzz");
    std::uint64_t end = 0;
    for (const tetrad::TensorInfo& tensor : header.tensors) {
      if (tensor.begin != end || tensor.end < tensor.begin) std::abort();
      end = tensor.end;
    }
    if (header.data_begin > size || end != size - header.data_begin) std::abort();
  } catch (const tetrad::Error& error) {
    if (error.exit_code() != tetrad::ExitCode::bad_input) std::abort();
  }
  return 0;
}
