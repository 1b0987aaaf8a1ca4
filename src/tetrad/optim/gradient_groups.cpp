// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_groups.h"

#include <array>
#include <bit>
#include <utility>

namespace tetrad {

int waiting_gradients(std::int64_t groups) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(groups - 1)));
}

GradientGroups::GradientGroups(Backend& backend, std::vector<std::span<float>> tensors, std::int64_t groups)
    : backend_(backend), tensors_(std::move(tensors)), groups_(groups) {
  waiting_.resize(static_cast<std::size_t>(waiting_gradients(groups)));
  for (std::vector<Tensor>& level : waiting_)
    for (const std::span<float> tensor : tensors_)
      level.push_back(backend_.make_tensor(DType::f32, 1, std::ssize(tensor)));
}

void GradientGroups::end_group(std::size_t index) {
  const std::span<float> tensor = tensors_[index];
  if (tensor.empty()) return;
  // TreeSum (numerics/tree_sum.h), of tensors: a sum meets its neighbour of the same level; the last one,
  // whatever waits.
  std::size_t level = 0;
  for (; level < waiting_.size(); ++level) {
    const bool waits = (count_ >> level & 1) != 0;
    if (waits) {
      const std::array<const void*, 2> parts = {waiting_[level][index].f32(), tensor.data()};
      backend_.ordered_sum({.parts = parts, .out = tensor.data(), .size = std::ssize(tensor)});
    }
    if (!waits && !is_last()) break;
  }
  if (!is_last()) backend_.copy(std::as_bytes(tensor), waiting_[level][index].bytes());
}

}  // namespace tetrad
