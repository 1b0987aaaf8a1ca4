// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory of the machine that a GPU can read and write: pinned, and mapped at the same address.

#include <cstddef>
#include <cstdint>

#include "tetrad/core/buffer.h"
#include "tetrad/core/threads.h"

namespace tetrad::cuda {

/// The driver pins a piece in one go and holds its locks meanwhile. It copies within pieces only.
inline constexpr std::size_t kPinnedPiece = std::size_t{1} << 30;

/// Bytes to the end of the piece, if the address is in one.
inline std::size_t until_next_piece(const void* address) {
  return kPinnedPiece - reinterpret_cast<std::uintptr_t>(address) % kPinnedPiece;
}

/// Filled with zeros, for the current device. Throws Error (failure) where there is not enough, or not enough
/// may be pinned.
Buffer allocate_pinned(Threads& threads, std::size_t bytes);

}  // namespace tetrad::cuda
