// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/gradients.h"

#include <cmath>
#include <utility>

namespace tetrad {
namespace {

/// |r + d|²
double squared_norm(const DeviationSums& sums) { return sums.reference + 2 * sums.product + sums.deviation; }

}  // namespace

std::vector<float> differentiate(Decoder& decoder, Pass& pass, const Microbatch& batch) {
  std::vector<float> losses(batch.inputs.size());
  const float scale = static_cast<float>(1 / static_cast<double>(losses.size()));
  decoder.clear_gradients();
  decoder.train(pass, batch.inputs, batch.targets, scale, losses, batch.document_starts);
  return losses;
}

Gradients make_gradients(Decoder& decoder) {
  Gradients gradients;
  for (const auto& parameter : decoder.parameters()) {
    const Tensor& like = parameter->gradient;
    Tensor& zeros =
        gradients.emplace_back(decoder.backend().make_tensor(DType::f32, like.rows(), like.cols()));
    decoder.backend().set_to_zero(zeros.bytes());
  }
  return gradients;
}

void keep_gradients(Decoder& decoder, Gradients& copy) {
  for (std::size_t i = 0; i < copy.size(); ++i)
    decoder.backend().copy(std::as_const(decoder.parameters()[i]->gradient).bytes(), copy[i].bytes());
}

std::vector<DeviationSums> deviations(Decoder& decoder, const Gradients& reference, Gradients* sum) {
  std::vector<DeviationTensor> tensors;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const Tensor& gradient = decoder.parameters()[i]->gradient;
    tensors.push_back(
        {gradient.f32(), reference[i].f32(), sum == nullptr ? nullptr : (*sum)[i].f32(), gradient.size()});
  }
  return decoder.backend().deviations(tensors);
}

std::vector<double> squares(Backend& backend, const Gradients& gradients) {
  std::vector<DeviationTensor> tensors;
  for (const Tensor& gradient : gradients)
    tensors.push_back({gradient.f32(), nullptr, nullptr, gradient.size()});
  std::vector<double> result;
  for (const DeviationSums& sums : backend.deviations(tensors)) result.push_back(sums.deviation);
  return result;
}

DeviationSums sum(std::span<const DeviationSums> parts) {
  DeviationSums all;
  for (const DeviationSums& part : parts) all.add(part);
  return all;
}

double relative_error(const DeviationSums& sums) { return sums.deviation / sums.reference; }

double cosine(const DeviationSums& sums) {
  return (sums.reference + sums.product) / std::sqrt(sums.reference * squared_norm(sums));
}

double norm_ratio(const DeviationSums& sums) { return std::sqrt(squared_norm(sums) / sums.reference); }

}  // namespace tetrad
