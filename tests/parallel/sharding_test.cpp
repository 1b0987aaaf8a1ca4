// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

using Bands = std::vector<RowBand>;

TEST(Sharding, DealsOutAllRowsInOrderAndEvenly) {
  // Vocabularies of GPT-2, Llama 2, Llama 3 and Nemotron, among sizes around multiples.
  for (const std::int64_t rows : {0, 1, 15, 16, 17, 127, 128, 129, 4096, 14336, 32000, 50257, 128256, 131072})
    for (const std::int64_t granularity : {1, 16, 128})
      for (const int ranks : {1, 2, 3, 4, 7, 8, 64, 1000})
        for (const std::int64_t turn : {0, 1, 5, 1234}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows, steps of " << granularity << ", " << ranks
                                            << " ranks, turn " << turn);
          const Bands bands = bands_of_rows(rows, granularity, ranks, turn);
          ASSERT_EQ(bands.size(), static_cast<std::size_t>(ranks));
          std::int64_t next = 0;
          std::int64_t most = 0;
          std::int64_t least = rows + granularity;
          for (const RowBand& band : bands) {
            EXPECT_EQ(band.first, next);
            EXPECT_GE(band.count, 0);
            next += band.count;
            const bool is_last = next == rows;
            EXPECT_TRUE(is_last || band.count % granularity == 0);
            EXPECT_TRUE(band.count == 0 || band.first % granularity == 0);
            const std::int64_t steps = (band.count + granularity - 1) / granularity;
            most = std::max(most, steps);
            least = std::min(least, steps);
          }
          EXPECT_EQ(next, rows);
          EXPECT_LE(most - least, 1);
        }
}

TEST(Sharding, IsThisOne) {
  EXPECT_EQ(bands_of_rows(64, 16, 2), (Bands{{0, 32}, {32, 32}}));
  EXPECT_EQ(bands_of_rows(50, 16, 2), (Bands{{0, 32}, {32, 18}}));
  EXPECT_EQ(bands_of_rows(80, 16, 4), (Bands{{0, 32}, {32, 16}, {48, 16}, {64, 16}}));
  EXPECT_EQ(bands_of_rows(80, 16, 4, 2), (Bands{{0, 16}, {16, 16}, {32, 32}, {64, 16}}));
  EXPECT_EQ(bands_of_rows(16, 16, 3), (Bands{{0, 16}, {16, 0}, {16, 0}}));
}

/// Sums over pieces are the same for any number of ranks because bands are made of whole pieces.
TEST(Sharding, BandsAreNeighbouringPieces) {
  for (const std::int64_t rows : {16, 48, 67, 80, 259, 512, 2048, 4096, 50257, 128256})
    for (const std::int64_t turn : {0, 3, 77}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, turn " << turn);
      const Bands pieces = pieces_of_rows(rows, turn);
      ASSERT_EQ(pieces.size(), static_cast<std::size_t>(kPieces));
      for (const RowBand& piece : pieces)
        EXPECT_TRUE(piece.count == 0 || piece.first % (rows >= 2048 ? 128 : 16) == 0) << piece.first;
      for (int ranks = 1; ranks <= kPieces; ++ranks) {
        const Bands bands = bands_of_pieces(pieces, ranks);
        ASSERT_EQ(bands.size(), static_cast<std::size_t>(ranks));
        std::int64_t next = 0;
        std::size_t owned = 0;
        for (const RowBand& band : bands) {
          EXPECT_EQ(band.first, next);
          next += band.count;
          for (const RowBand& piece : pieces) owned += piece.count > 0 && contains(band, piece) ? 1 : 0;
        }
        EXPECT_EQ(next, rows);
        EXPECT_EQ(owned, static_cast<std::size_t>(
                             std::ranges::count_if(pieces, [](const RowBand& p) { return p.count > 0; })));
      }
      EXPECT_THROW(bands_of_pieces(pieces, kPieces + 1), Error);
      EXPECT_THROW(bands_of_pieces(pieces, 0), Error);
    }
}

TEST(Sharding, DealsSmallTensorsToAllRanksInTurn) {
  std::vector<std::int64_t> held(4);
  for (std::int64_t turn = 0; turn < 8; ++turn) {
    const Bands bands = bands_of_rows(1, 16, 4, turn);
    for (std::size_t rank = 0; rank < 4; ++rank) held[rank] += bands[rank].count;
  }
  EXPECT_EQ(held, std::vector<std::int64_t>(4, 2));
}

TEST(Sharding, RefusesWhatCannotBe) {
  EXPECT_THROW(bands_of_rows(-1, 16, 2), Error);
  EXPECT_THROW(bands_of_rows(16, 0, 2), Error);
  EXPECT_THROW(bands_of_rows(16, 16, 0), Error);
  EXPECT_THROW(bands_of_rows(16, 16, 2, -1), Error);
}

}  // namespace
}  // namespace tetrad
