// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the communicators of this folder share.

#include <cstddef>
#include <cstring>
#include <span>

namespace tetrad {

/// What a rank sends to itself, in the program's memory.
inline void copy_unless_same(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

/// Throws Error unless the list is of different ranks among `size`, of which `rank` is one. Returns its
/// place.
int check_members(std::span<const int> ranks, int rank, int size);

}  // namespace tetrad
