// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/sharding.h"

#include <algorithm>

#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"

namespace tetrad {

std::vector<RowBand> bands_of_rows(std::int64_t rows, std::int64_t granularity, int ranks,
                                   std::int64_t turn) {
  TETRAD_CHECK(rows >= 0 && granularity >= 1 && ranks >= 1 && turn >= 0,
               "{} rows in steps of {} cannot be dealt to {} ranks, beginning with turn {}", rows,
               granularity, ranks, turn);
  const std::int64_t steps = ceil_div(rows, granularity);
  const std::int64_t extra = steps % ranks;
  std::vector<RowBand> bands;
  std::int64_t first = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t place = (rank + ranks - turn % ranks) % ranks;
    const std::int64_t most = (steps / ranks + (place < extra ? 1 : 0)) * granularity;
    const std::int64_t count = std::min(most, rows - first);
    bands.push_back({first, count});
    first += count;
  }
  return bands;
}

std::vector<RowBand> pieces_of_rows(std::int64_t rows, std::int64_t turn) {
  // As large blocks as leave every piece some: those of FP8, of MXFP4, and else those of NVFP4.
  std::int64_t granularity = 16;
  for (const std::int64_t larger : {32, 128})
    if (rows >= kPieces * larger) granularity = larger;
  return bands_of_rows(rows, granularity, kPieces, turn);
}

std::vector<RowBand> bands_of_pieces(std::span<const RowBand> pieces, int ranks) {
  const auto count = static_cast<int>(pieces.size());
  TETRAD_CHECK(ranks >= 1 && ranks <= count, "{} ranks cannot share a matrix of {} pieces", ranks, count);
  std::vector<RowBand> bands;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = static_cast<std::size_t>(rank * count / ranks);
    const auto end = static_cast<std::size_t>((rank + 1) * count / ranks);
    RowBand& band = bands.emplace_back(pieces[first].first, 0);
    for (const RowBand& piece : pieces.subspan(first, end - first)) band.count += piece.count;
  }
  return bands;
}

}  // namespace tetrad
