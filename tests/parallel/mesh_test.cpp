// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/mesh.h"

#include <gtest/gtest.h>

#include "tetrad/core/error.h"

namespace tetrad {
namespace {

using Ranks = std::vector<int>;

TEST(Mesh, OfOneAxisIsAllRanks) {
  const Mesh mesh({{std::string(kDataAxis), 4}});
  EXPECT_EQ(mesh.size(), 4);
  EXPECT_EQ(mesh.along(kDataAxis, 2), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(mesh.place_on(kDataAxis, 2), 2);
}

TEST(Mesh, HasNeighboursOnTheLastAxis) {
  const Mesh mesh({{"stage", 2}, {"data", 3}, {"tensor", 4}});
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.along("tensor", 18), (Ranks{16, 17, 18, 19}));
  EXPECT_EQ(mesh.along("data", 18), (Ranks{14, 18, 22}));
  EXPECT_EQ(mesh.along("stage", 18), (Ranks{6, 18}));
  EXPECT_EQ(mesh.along("context", 18), (Ranks{18}));
  EXPECT_EQ(mesh.size_of("context"), 1);
  for (int rank = 0; rank < mesh.size(); ++rank)
    EXPECT_EQ(rank, (mesh.place_on("stage", rank) * 3 + mesh.place_on("data", rank)) * 4 +
                        mesh.place_on("tensor", rank));
}

TEST(Mesh, RefusesWhatIsNone) {
  EXPECT_THROW(Mesh({{"data", 0}}), Error);
  EXPECT_THROW(Mesh({{"data", 2}, {"data", 2}}), Error);
  EXPECT_THROW(Mesh({{"data", 2}}).place_on("data", 2), Error);
}

TEST(NodePlace, CountsRanksOfEachNode) {
  const std::vector<std::string> hosts = {"b", "b", "a", "a", "a", "b"};
  EXPECT_EQ(place_of(0, hosts), (NodePlace{0, 3, 0, 2}));
  EXPECT_EQ(place_of(4, hosts), (NodePlace{2, 3, 1, 2}));
  EXPECT_EQ(place_of(5, hosts), (NodePlace{2, 3, 0, 2}));
  EXPECT_EQ(ranks_of_node(3, hosts), (Ranks{2, 3, 4}));
  EXPECT_EQ(ranks_across_nodes(3, hosts), (Ranks{1, 3}));
  EXPECT_EQ(ranks_across_nodes(5, hosts), (Ranks{4, 5}));
}

}  // namespace
}  // namespace tetrad
