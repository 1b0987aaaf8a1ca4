// SPDX-License-Identifier: Apache-2.0
// The model of links beside speeds that others have published: docs/benchmarks.md has the same table.
#include "tetrad/train/link_time.h"

#include <gtest/gtest.h>

namespace tetrad::testing::link_time_test {
namespace {

/// Collectives of one size among some ranks.
double seconds(int ranks, double bytes_of_whole, Route route = Route::by_nodes) {
  return link_seconds(1, bytes_of_whole * (ranks - 1) / ranks, ranks, Links{}, route);
}

TEST(LinkTime, IsLatencyAndBandwidth) {
  const Links links{.ranks_per_node = 4, .inside = 100, .between = 10, .latency = 1};
  EXPECT_EQ(link_seconds(3, 1000, 1, links, Route::direct), 0) << "nobody to send to";
  EXPECT_DOUBLE_EQ(link_seconds(3, 1000, 4, links, Route::direct), 3 + 10);
  EXPECT_DOUBLE_EQ(link_seconds(3, 1000, 4, links, Route::by_nodes), 3 + 10);
  // Eight ranks on two nodes: four sevenths leave the node.
  EXPECT_DOUBLE_EQ(link_seconds(1, 700, 8, links, Route::direct), 2 + 40);
  // The whole is 800: between nodes each carries a quarter of the other node's 400, inside three quarters of
  // all.
  EXPECT_DOUBLE_EQ(link_seconds(1, 700, 8, links, Route::by_nodes), 2 + 10 + 6);
}

struct Published {
  const char* name;
  double tokens_per_s;  //!< of each GPU, of the fewer ranks
  double ratio;         //!< of the more ranks' to that
};

/// llmq, 8 GPUs with an eighth of the batch each beside one: gradients and weights in BF16, once a step,
/// beside nothing.
TEST(LinkTime, ReproducesLlmq) {
  constexpr double kTokens = 64 * 1024;
  struct Run : Published {
    double parameters;
  };
  for (const Run& run : {Run{{"3B, FP8", 40379.54, 39125.97 / 40379.54}, 3085697024.},
                         Run{{"3B, BF16", 30915.03, 29993.59 / 30915.03}, 3085697024.},
                         Run{{"0.5B, FP8", 164611.62, 163431.42 / 164611.62}, 493961216.},
                         Run{{"0.5B, BF16", 149625.57, 146941.70 / 149625.57}, 493961216.}}) {
    const double alone = kTokens / run.tokens_per_s;
    const double ratio = alone / (alone + 2 * seconds(8, 2 * run.parameters));
    RecordProperty(run.name, std::to_string(ratio));
    EXPECT_NEAR(ratio, run.ratio, 0.03) << run.name;
  }
}

/// torchtitan, 128 GPUs beside 8: layers are gathered and reduced behind those before and after, but nothing
/// hides the first gather (embedding and head, BF16) and the last reduction (embedding, f32).
TEST(LinkTime, ReproducesTorchtitan) {
  constexpr double kTokens = 2 * 8192;
  constexpr double kEmbedding = 128256. * 4096;
  const auto exposed = [&](int ranks) {
    return seconds(ranks, 2 * 2 * kEmbedding) + seconds(ranks, 4 * kEmbedding);
  };
  for (const Published& run : {Published{"eager, BF16", 5762, 5605. / 5762},
                               Published{"BF16", 6667, 6514. / 6667}, Published{"FP8", 8532, 8380. / 8532}}) {
    const double of_eight = kTokens / run.tokens_per_s;
    const double ratio = of_eight / (of_eight - exposed(8) + exposed(128));
    RecordProperty(run.name, std::to_string(ratio));
    EXPECT_NEAR(ratio, run.ratio, 0.03) << run.name;
  }
}

}  // namespace
}  // namespace tetrad::testing::link_time_test
