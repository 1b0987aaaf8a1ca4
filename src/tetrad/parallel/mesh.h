// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where ranks stand to each other: on a mesh of named axes, each with a purpose, and on the nodes of a
// cluster.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad {

inline constexpr std::string_view kDataAxis = "data";

struct MeshAxis {
  std::string name;
  int size = 1;
};

/// Ranks in a grid. Neighbours on the last axis have neighbouring numbers.
class Mesh {
 public:
  /// Throws Error unless axes have different names and at least one rank each.
  explicit Mesh(std::vector<MeshAxis> axes);

  int size() const;
  /// 1 for an axis that the mesh does not have.
  int size_of(std::string_view axis) const;
  /// Where the rank is on the axis.
  int place_on(std::string_view axis, int rank) const;
  /// The ranks that differ from this one on the axis alone, and itself, in order: for Communicator::among.
  std::vector<int> along(std::string_view axis, int rank) const;

 private:
  /// Ranks from one place on the axis to the next.
  int stride_of(std::string_view axis) const;

  std::vector<MeshAxis> axes_;
};

/// The rank among those of its node, and the node among all.
struct NodePlace {
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  friend bool operator==(const NodePlace&, const NodePlace&) = default;
};

/// `hosts` has the name of each rank's machine. Nodes are counted in the order of their lowest ranks.
NodePlace place_of(int rank, std::span<const std::string> hosts);
/// The ranks on this one's node, and those that have the same local rank on every node: for
/// Communicator::among, where a sum goes through nodes first.
std::vector<int> ranks_of_node(int rank, std::span<const std::string> hosts);
std::vector<int> ranks_across_nodes(int rank, std::span<const std::string> hosts);

}  // namespace tetrad
