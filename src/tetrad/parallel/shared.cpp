// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/shared.h"

#include <algorithm>
#include <set>

#include "tetrad/core/error.h"

namespace tetrad {

int check_members(std::span<const int> ranks, int rank, int size) {
  const std::set<int> members(ranks.begin(), ranks.end());
  TETRAD_CHECK(
      members.size() == ranks.size() && !members.empty() && *members.begin() >= 0 && *members.rbegin() < size,
      "a communicator needs different ranks from 0 to {}", size - 1);
  const auto place = std::ranges::find(ranks, rank);
  TETRAD_CHECK(place != ranks.end(), "rank {} asks for a communicator that it is not a member of", rank);
  return static_cast<int>(place - ranks.begin());
}

}  // namespace tetrad
