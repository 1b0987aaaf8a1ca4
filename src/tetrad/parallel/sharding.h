// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rows of a tensor each rank holds: bands of whole rows, so that no block of a quantizer lies on two
// ranks and the codes of a band are those of the whole.

#include <cstdint>
#include <span>
#include <vector>

namespace tetrad {

/// Rows first … first + count - 1; none if count is 0.
struct RowBand {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const RowBand&, const RowBand&) = default;
};

/// Whether all rows of the second are rows of the first.
constexpr bool contains(const RowBand& band, const RowBand& rows) {
  return rows.first >= band.first && rows.first + rows.count <= band.first + band.count;
}

/// Cuts `rows` into one band for each rank, in the order of ranks. A band is a multiple of `granularity`
/// rows (16 for NVFP4, 128 for FP8 in tiles), but for the last one with rows, which has what is left over.
/// Bands differ by one granularity at most; who has more begins at rank `turn` modulo `ranks`, so that the
/// small tensors of a model, each with a turn of its own, do not all fall to the same rank.
std::vector<RowBand> bands_of_rows(std::int64_t rows, std::int64_t granularity, int ranks,
                                   std::int64_t turn = 0);

/// Matrices that ranks share are cut into so many pieces, the same ones however many ranks there are: what is
/// summed up piece by piece does not depend on who has them. As many ranks can share a matrix.
inline constexpr int kPieces = 16;

/// The pieces of a matrix, some of which may be empty.
std::vector<RowBand> pieces_of_rows(std::int64_t rows, std::int64_t turn);

/// Neighbouring pieces are a rank's band. One for each rank.
std::vector<RowBand> bands_of_pieces(std::span<const RowBand> pieces, int ranks);

}  // namespace tetrad
