// SPDX-License-Identifier: Apache-2.0
#pragma once
// A hash of each piece of a file, so that several threads can share the work: SHA-256 of a whole file is
// sequential.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tetrad/io/sha256.h"

namespace tetrad {

inline constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;
inline constexpr int kHashThreads = 4;

/// Bytes of a file, from `begin` up to `end`.
struct FilePiece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// How many pieces a file of so many bytes has; the last may be shorter. `piece_bytes` 0: the file is one
/// piece.
std::uint64_t piece_count(std::uint64_t bytes, std::uint64_t piece_bytes);

/// The hash of each piece, in their order. `visit(piece, thread, hash)` gives `hash` the bytes of a piece; it
/// is called by up to kHashThreads threads at once, of which `thread` counts from 0. The first exception is
/// thrown again when all have stopped.
std::vector<std::string> hash_pieces(
    std::uint64_t bytes, std::uint64_t piece_bytes,
    const std::function<void(const FilePiece& piece, std::size_t thread, Sha256& hash)>& visit);

}  // namespace tetrad
