// SPDX-License-Identifier: Apache-2.0
#include "tetrad/train/link_time.h"

#include <algorithm>

namespace tetrad {

std::string_view name_of(Route route) {
  switch (route) {
    case Route::within_node:
      return "within nodes";
    case Route::between_nodes:
      return "between nodes";
    default:
      return "";
  }
}

double link_seconds(std::int64_t calls, double bytes, int ranks, const Links& links, Route route) {
  if (ranks <= 1) return 0;
  const auto count = static_cast<double>(calls);
  if (route == Route::within_node) return count * links.latency + bytes / links.inside;
  if (route == Route::between_nodes) return count * links.latency + bytes / links.between;
  const auto others = static_cast<double>(ranks - 1);
  const int node = std::min(links.ranks_per_node, ranks);
  const int away = ranks - node;
  const double inside = bytes * (node - 1) / others / links.inside;
  if (away == 0) return count * links.latency + inside;
  if (route == Route::direct)  // both at a time
    return 2 * count * links.latency + std::max(inside, bytes * away / others / links.between);
  // Between nodes a rank has a part of its node's data, and within its node all of it.
  const double whole = bytes / others * ranks;
  return 2 * count * links.latency + whole * away / ranks / node / links.between +
         whole * (node - 1) / node / links.inside;
}

}  // namespace tetrad
