// SPDX-License-Identifier: Apache-2.0
#include "tetrad/ops/memory.h"

namespace tetrad {

std::int64_t quantized_bytes(const MemoryTraits& traits, const QuantSpec& spec, Form form, std::int64_t rows,
                             std::int64_t cols) {
  if (traits.operands_are_values && form == Form::operand && spec.format != Format::fp8)
    return 2 * rows * cols;
  const PackedSize size = packed_size(spec, rows, cols);
  return size.codes + size.scales;
}

}  // namespace tetrad
