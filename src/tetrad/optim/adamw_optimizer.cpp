// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/adamw_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "tetrad/model/weight_shards.h"

namespace tetrad {

DType moment_storage(const OptimConfig& config) {
  return config.moments == "bf16" ? DType::bf16 : DType::f32;
}

AdamWOptimizer::AdamWOptimizer(Backend& backend, const std::vector<std::unique_ptr<Parameter>>& parameters,
                               OptimConfig config, std::int64_t host_moments, std::uint64_t seed)
    : backend_(backend), parameters_(parameters), config_(std::move(config)), seed_(seed) {
  const auto type_of = [storage = moment_storage(config_)](const Parameter& parameter) {
    return moment_type(storage, parameter.is_linear);
  };
  const auto zeros = [&](const Parameter& parameter, bool on_host) {
    const std::int64_t rows = parameter.value.rows();
    const std::int64_t cols = parameter.value.cols();
    const DType type = type_of(parameter);
    if (on_host)
      return Tensor(backend_.allocate_on_host(static_cast<std::size_t>(moment_bytes(rows * cols, type) / 2)),
                    type, rows, cols);
    Tensor tensor = backend_.make_tensor(type, rows, cols);
    backend_.set_to_zero(tensor.bytes());
    return tensor;
  };
  std::vector<std::int64_t> sizes;
  for (const auto& parameter : parameters_)
    sizes.push_back(moment_bytes(parameter->value.size(), type_of(*parameter)));
  const std::vector<bool> on_host = moments_on_host(sizes, host_moments);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    moments_.push_back({zeros(parameter, on_host[i]), zeros(parameter, on_host[i])});
    Moments& moments = moments_.back();
    if (parameter.shards != nullptr) shards_ = parameter.shards;
    const std::int64_t cols = parameter.cols();
    const auto sum = [&](const RowBand& rows) {
      if (rows.count > 0)
        summed_.push_back({.gradient = parameter.summed_gradient(rows.first),
                           .size = rows.count * cols,
                           .parameter = static_cast<std::uint32_t>(i)});
    };
    for (const RowBand& piece : parameter.pieces)
      if (contains(parameter.band, piece)) sum(piece);
    if (parameter.pieces.empty()) sum(parameter.band);
    if (parameter.band.count == 0) continue;
    tensors_.push_back({.weight = parameter.value.f32(),
                        .gradient = parameter.summed_gradient(parameter.band.first),
                        .first_moment = moments.first.bytes().data(),
                        .second_moment = moments.second.bytes().data(),
                        .size = parameter.value.size(),
                        .decay = parameter.decay,
                        .moments_on_host = on_host[i],
                        .moments = moments.first.dtype(),
                        .parameter = static_cast<std::uint32_t>(i),
                        .first = parameter.first_element()});
  }
}

std::vector<double> AdamWOptimizer::squares() {
  const std::vector<std::vector<double>> all = of_all_ranks(backend_.squared_norms(summed_));
  // Pieces in their order, which is that of the ranks that have them: the sum is that of one rank alone.
  std::vector<std::size_t> next(all.size(), 0);
  std::vector<double> sums(parameters_.size(), 0.0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    const std::vector<RowBand> summed =
        parameter.pieces.empty() ? std::vector{parameter.band} : parameter.pieces;
    const std::vector<RowBand> bands =
        parameter.shards != nullptr ? shards_->bands(parameter) : std::vector(all.size(), parameter.band);
    for (const RowBand& rows : summed) {
      if (rows.count == 0) continue;
      double sum = 0;
      for (std::size_t rank = all.size(); rank-- > 0;)  // all who have these rows have found the same
        if (contains(bands[rank], rows)) sum = all[rank][next[rank]++];
      sums[i] += sum;
    }
  }
  return sums;
}

std::vector<std::vector<double>> AdamWOptimizer::of_all_ranks(const std::vector<double>& own) const {
  if (shards_ == nullptr) return {own};
  std::vector<std::vector<double>> all;
  const auto* bytes = reinterpret_cast<const char*>(own.data());
  for (const std::string& one : shards_->ranks().share({bytes, own.size() * sizeof(double)})) {
    std::vector<double>& values = all.emplace_back(one.size() / sizeof(double));
    std::memcpy(values.data(), one.data(), one.size());
  }
  return all;
}

AdamWOptimizer::GradientReport AdamWOptimizer::inspect() {
  const std::vector<double> squares = this->squares();
  GradientReport report;
  for (std::size_t i = 0; i < squares.size(); ++i)
    if (!std::isfinite(squares[i]) && report.first_non_finite.empty())
      report.first_non_finite = parameters_[i]->name;
  report.norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  return report;
}

void AdamWOptimizer::step(std::int64_t step, double learning_rate, double norm) {
  AdamWStep op;
  op.tensors = tensors_;
  op.step = step;
  op.seed = seed_;
  op.learning_rate = static_cast<float>(learning_rate);
  op.beta1 = static_cast<float>(config_.beta1);
  op.beta2 = static_cast<float>(config_.beta2);
  op.epsilon = static_cast<float>(config_.epsilon);
  op.weight_decay = static_cast<float>(config_.weight_decay);
  op.gradient_scale =
      config_.clip > 0 && norm > config_.clip ? static_cast<float>(config_.clip / norm) : 1.0f;
  backend_.adamw(op);
  for (const auto& parameter : parameters_) ++parameter->version;
}

}  // namespace tetrad
