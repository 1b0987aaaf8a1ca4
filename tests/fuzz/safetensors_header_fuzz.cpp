// SPDX-License-Identifier: Apache-2.0
// Any bytes are a safetensors file whose tensors fill its data, or refused.

#include "fuzz/targets.h"
#include "support/files.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad::testing {

void fuzz_safetensors_header(std::string_view bytes) {
  read_or_refuse([&] {
    const SafetensorsHeader header = parse_safetensors_header(bytes_of(bytes), "fuzzed");
    std::uint64_t end = 0;
    for (const TensorInfo& tensor : header.tensors) {
      require(tensor.begin == end && tensor.end >= tensor.begin);
      end = tensor.end;
    }
    require(header.data_begin <= bytes.size() && end == bytes.size() - header.data_begin);
  });
}

}  // namespace tetrad::testing
