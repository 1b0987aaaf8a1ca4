// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/gradient_sum.h"

#include "tetrad/ops/ordered_sum.h"

namespace tetrad {

bool GroupDeal::keeps_order() const {
  if (groups % ranks != 0) return false;
  return ranks_keep_order(groups, travel_alone ? of_each() : ranks);
}

GradientSum::GradientSum(Backend& backend, Routes& routes,
                         const std::vector<std::unique_ptr<Parameter>>& parameters,
                         const std::vector<GradientUnit>& units, const GroupDeal& deal, DType wire)
    : backend_(backend),
      parameters_(parameters),
      units_(units),
      travel_alone_(deal.travel_alone),
      reduction_(backend, routes, parameters, units, wire),
      groups_(backend, summed_tensors(), deal.of_each()) {
  reduction_.on_added([this](std::size_t unit) {
    if (travel_alone_)
      for (const std::size_t parameter : units_[unit]) groups_.end_group(parameter);
    if (groups_.is_last()) reduction_.start_gather(unit);
  });
}

std::vector<std::span<float>> GradientSum::summed_tensors() const {
  std::vector<std::span<float>> tensors;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& gradient = parameters_[i]->gradient;
    tensors.push_back(travel_alone_ ? reduction_.own_part(i)
                                    : std::span(gradient.f32(), static_cast<std::size_t>(gradient.size())));
  }
  return tensors;
}

void GradientSum::finish_group() {
  if (!is_under_way_) return;
  reduction_.finish();
  groups_.next_group();
  is_under_way_ = false;
}

void GradientSum::restart() {
  finish_group();
  groups_.restart();
}

void GradientSum::begin_microbatch(bool is_first, bool is_last) {
  finish_group();
  clears_ = is_first;
  ends_group_ = is_last;
}

void GradientSum::begin_unit(std::size_t unit) {
  if (!clears_) return;
  for (const std::size_t parameter : units_[unit])
    backend_.set_to_zero(parameters_[parameter]->gradient.bytes());
}

void GradientSum::end_unit(std::size_t unit) {
  if (!ends_group_) return;
  is_under_way_ = true;
  if (travel_alone_) return reduction_.start(unit);
  for (const std::size_t parameter : units_[unit]) groups_.end_group(parameter);
  if (groups_.is_last()) reduction_.start(unit);
}

void GradientSum::finish() {
  finish_group();
  reduction_.wait();
}

}  // namespace tetrad
