// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is drawn where a file's tensors are quantized: a tensor's random bits follow from the seed and its
// name, so that they do not depend on its neighbours.

#include <cstdint>
#include <string_view>

#include "tetrad/numerics/hadamard.h"
#include "tetrad/numerics/philox.h"

namespace tetrad {

/// RandomStream::tensor of the tensor of that name.
inline std::uint32_t tensor_of_name(std::string_view name) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619u;
  return hash;
}

/// 128 signs of a transform for the whole file.
inline SignMask signs_of_file(std::uint64_t seed) {
  constexpr std::uint32_t kSignStream = 0xFFFFFFFFu;
  const PhiloxWords words = RandomStream{.seed = seed, .tensor = kSignStream}.group(0);
  return {{words[0], words[1], words[2], words[3]}};
}

}  // namespace tetrad
