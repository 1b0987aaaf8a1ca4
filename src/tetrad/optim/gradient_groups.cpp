// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_groups.h"

#include <array>
#include <bit>

namespace tetrad {

int waiting_gradients(std::int64_t groups) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(groups - 1)));
}

GradientGroups::GradientGroups(Backend& backend, const std::vector<std::unique_ptr<Parameter>>& parameters,
                               std::int64_t groups)
    : backend_(backend), parameters_(parameters), groups_(groups) {
  waiting_.resize(static_cast<std::size_t>(waiting_gradients(groups)));
  for (std::vector<Tensor>& level : waiting_)
    for (const auto& parameter : parameters_)
      level.push_back(
          backend_.make_tensor(DType::f32, parameter->gradient.rows(), parameter->gradient.cols()));
}

void GradientGroups::add_waiting(std::size_t level) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& gradient = parameters_[i]->gradient;
    const std::array<const void*, 2> parts = {waiting_[level][i].f32(), gradient.f32()};
    backend_.ordered_sum({.parts = parts, .out = gradient.f32(), .size = gradient.size()});
  }
}

void GradientGroups::end_group() {
  const bool is_last = count_ + 1 == groups_;
  // TreeSum (numerics/tree_sum.h), of tensors: a sum meets its neighbour of the same level; the last one,
  // whatever waits.
  std::size_t level = 0;
  for (; level < waiting_.size(); ++level) {
    const bool waits = (count_ >> level & 1) != 0;
    if (waits) add_waiting(level);
    if (!waits && !is_last) break;
  }
  if (is_last) return restart();
  ++count_;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    backend_.copy(parameters_[i]->gradient.bytes(), waiting_[level][i].bytes());
}

}  // namespace tetrad
