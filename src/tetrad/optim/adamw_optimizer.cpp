// SPDX-License-Identifier: Apache-2.0
#include "tetrad/optim/adamw_optimizer.h"

#include <cmath>
#include <numeric>

namespace tetrad {

AdamWOptimizer::AdamWOptimizer(Backend& backend, const std::vector<std::unique_ptr<Parameter>>& parameters,
                               OptimConfig config, std::int64_t host_moments)
    : backend_(backend), parameters_(parameters), config_(config) {
  const auto zeros_like = [&](const Tensor& tensor, bool on_host) {
    if (on_host)
      return Tensor(backend_.allocate_on_host(tensor.bytes().size()), DType::f32, tensor.rows(),
                    tensor.cols());
    Tensor zeros = backend_.make_tensor(DType::f32, tensor.rows(), tensor.cols());
    backend_.set_to_zero(zeros.bytes());
    return zeros;
  };
  std::vector<std::int64_t> sizes;
  for (const auto& parameter : parameters_) sizes.push_back(parameter->value.size());
  const std::vector<bool> on_host = moments_on_host(sizes, host_moments);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    moments_.push_back({zeros_like(parameter.value, on_host[i]), zeros_like(parameter.value, on_host[i])});
    tensors_.push_back({parameter.value.f32(), parameter.gradient.f32(), moments_.back().first.f32(),
                        moments_.back().second.f32(), parameter.value.size(), parameter.decay, on_host[i]});
  }
}

AdamWOptimizer::GradientReport AdamWOptimizer::inspect() {
  const std::vector<double> squares = backend_.squared_norms(tensors_);
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
