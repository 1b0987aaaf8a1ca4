// Any bytes are a GGUF file whose tensors lie within it, or refused.

#include "fuzz/targets.h"
#include "support/files.h"
#include "tetrad/interchange/gguf_file.h"

namespace tetrad::testing {

void fuzz_gguf(std::string_view bytes) {
  read_or_refuse([&] {
    for (const auto& [name, place] : parse_gguf(bytes_of(bytes), "fuzzed").tensors)
      require(place.begin <= bytes.size() && place.bytes <= bytes.size() - place.begin);
  });
}

}  // namespace tetrad::testing
