// SPDX-License-Identifier: Apache-2.0
#include "tetrad/interchange/gguf_format.h"

#include <optional>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/interchange/values.h"
#include "tetrad/io/safetensors_header.h"

namespace tetrad {

std::uint64_t gguf_tensor_bytes(std::string_view where, const GgufTensor& tensor) {
  std::vector<std::uint64_t> extents;
  for (const std::int64_t extent : tensor.shape) extents.push_back(static_cast<std::uint64_t>(extent));
  const auto elements = checked_product(extents);
  const auto width = [&]() -> std::uint64_t {
    switch (tensor.type) {
      case GgmlType::f32:
        return 4;
      case GgmlType::f16:
      case GgmlType::bf16:
        return 2;
      case GgmlType::nvfp4:
        return 0;
      default:
        fail("{}: tensor {} has the type {}: only F32, F16, BF16 and NVFP4 are read; export the model so",
             where, quoted_name(tensor.name), static_cast<std::uint32_t>(tensor.type));
    }
  }();
  std::optional<std::uint64_t> bytes;
  if (elements && width > 0) bytes = checked_mul(*elements, width);
  if (elements && width == 0) {
    TETRAD_CHECK(!tensor.shape.empty() && tensor.shape.back() % kGgmlNvfp4Values == 0,
                 "{}: the rows of {} are not a multiple of 64 values, the block of NVFP4 in GGUF: {}", where,
                 quoted_name(tensor.name), kGgufDamaged);
    bytes = checked_mul(*elements / kGgmlNvfp4Values, kGgmlNvfp4Bytes);
  }
  TETRAD_CHECK(bytes, "{}: tensor {} has more bytes than can be counted, or endless rows of nothing: {}",
               where, quoted_name(tensor.name), kGgufDamaged);
  return *bytes;
}

}  // namespace tetrad
