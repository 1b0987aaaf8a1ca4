// SPDX-License-Identifier: Apache-2.0
#include "tetrad/parallel/mesh.h"

#include <algorithm>
#include <set>

#include "tetrad/core/error.h"

namespace tetrad {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  for (const auto& [name, size] : axes_) {
    TETRAD_CHECK(size >= 1, "an axis {:?} of {} ranks: a mesh needs at least one on each", name, size);
    TETRAD_CHECK(names.insert(name).second, "a mesh with two axes {:?}", name);
  }
}

int Mesh::size() const {
  int product = 1;
  for (const MeshAxis& axis : axes_) product *= axis.size;
  return product;
}

int Mesh::size_of(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  return found == axes_.end() ? 1 : found->size;
}

int Mesh::stride_of(std::string_view axis) const {
  int stride = 1;
  for (auto inner = axes_.rbegin(); inner != axes_.rend() && inner->name != axis; ++inner)
    stride *= inner->size;
  return stride;
}

int Mesh::place_on(std::string_view axis, int rank) const {
  TETRAD_CHECK(rank >= 0 && rank < size(), "there is no rank {} among {}", rank, size());
  return rank / stride_of(axis) % size_of(axis);
}

std::vector<int> Mesh::along(std::string_view axis, int rank) const {
  const int stride = stride_of(axis);
  const int first = rank - place_on(axis, rank) * stride;
  std::vector<int> ranks;
  for (int place = 0; place < size_of(axis); ++place) ranks.push_back(first + place * stride);
  return ranks;
}

NodePlace place_of(int rank, std::span<const std::string> hosts) {
  const std::string& own = hosts[static_cast<std::size_t>(rank)];
  NodePlace place{.local_rank = 0, .local_size = 0, .node = 0, .nodes = 0};
  std::set<std::string> seen;
  for (std::size_t other = 0; other < hosts.size(); ++other) {
    if (hosts[other] == own) {
      if (other < static_cast<std::size_t>(rank)) ++place.local_rank;
      if (place.local_size == 0) place.node = static_cast<int>(seen.size());
      ++place.local_size;
    }
    seen.insert(hosts[other]);
  }
  place.nodes = static_cast<int>(seen.size());
  return place;
}

std::vector<int> ranks_of_node(int rank, std::span<const std::string> hosts) {
  std::vector<int> ranks;
  for (std::size_t other = 0; other < hosts.size(); ++other)
    if (hosts[other] == hosts[static_cast<std::size_t>(rank)]) ranks.push_back(static_cast<int>(other));
  return ranks;
}

std::vector<int> ranks_across_nodes(int rank, std::span<const std::string> hosts) {
  const int local_rank = place_of(rank, hosts).local_rank;
  std::vector<int> ranks;
  for (int other = 0; other < static_cast<int>(hosts.size()); ++other)
    if (place_of(other, hosts).local_rank == local_rank) ranks.push_back(other);
  return ranks;
}

}  // namespace tetrad
