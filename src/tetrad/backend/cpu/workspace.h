// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tetrad/core/buffer.h"

namespace tetrad::cpu {

/// Room for `elements` floats in a buffer that stays between calls: fresh pages cost more than the work on
/// them.
inline float* workspace(Buffer& buffer, std::int64_t elements) {
  const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
  if (buffer.size() < bytes) buffer = Buffer(bytes);
  return buffer.as<float>();
}

}  // namespace tetrad::cpu
