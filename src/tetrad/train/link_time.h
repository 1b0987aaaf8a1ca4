// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long ranks take to send each other something: latency and bandwidth, nothing else. What it leaves out
// (ranks that wait for a slow one, collectives and kernels in each other's way) makes real runs slower, so it
// is the best that can be hoped for; docs/benchmarks.md holds it to runs of others.

#include <cstdint>
#include <string_view>

namespace tetrad {

/// What each GPU can send at a time.
struct Links {
  int ranks_per_node = 8;
  double inside = 330e9;   //!< bytes per second to GPUs of its node
  double between = 45e9;   //!< bytes per second to other nodes
  double latency = 10e-6;  //!< seconds of a call, once for inside and once for between
};

enum class Route : std::uint8_t {
  direct,         //!< each rank to each: what is for another node leaves it as often as that has ranks
  by_nodes,       //!< within nodes first, then between them: of a node's data each rank carries its part
  within_node,    //!< the first of these legs by itself …
  between_nodes,  //!< … and the second
};
std::string_view name_of(Route route);

/// Of `calls` collectives, exchanges or gathers, in which each of `ranks` hands `bytes` to the others.
double link_seconds(std::int64_t calls, double bytes, int ranks, const Links& links, Route route);

}  // namespace tetrad
