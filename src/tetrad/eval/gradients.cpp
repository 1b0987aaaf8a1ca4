// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/gradients.h"

#include <cmath>
#include <numeric>

#include "tetrad/core/threads.h"

namespace tetrad {
namespace {

GradientProducts products_of(std::span<const float> a, std::span<const float> b) {
  GradientProducts products;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products.ab += static_cast<double>(a[i]) * b[i];
    products.aa += static_cast<double>(a[i]) * a[i];
    products.bb += static_cast<double>(b[i]) * b[i];
  }
  return products;
}

}  // namespace

std::int64_t microbatch_sequences(const TrainConfig& train) {
  return train.microbatch > 0 ? train.microbatch : train.batch;
}

Microbatch next_microbatch(Dataset& dataset, const TrainConfig& train) {
  const std::int64_t sequences = microbatch_sequences(train);
  Microbatch batch;
  batch.inputs.resize(static_cast<std::size_t>(sequences * train.sequence));
  batch.targets.resize(batch.inputs.size());
  if (dataset.masks_documents()) batch.document_starts.resize(batch.inputs.size());
  dataset.next(sequences, batch.inputs, batch.targets, batch.document_starts);
  return batch;
}

double differentiate(Decoder& decoder, Pass& pass, const Microbatch& batch) {
  std::vector<float> losses(batch.inputs.size());
  const auto tokens = static_cast<double>(losses.size());
  decoder.clear_gradients();
  decoder.train(pass, batch.inputs, batch.targets, static_cast<float>(1 / tokens), losses,
                batch.document_starts);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / tokens;
}

Gradients download_gradients(Decoder& decoder) {
  Gradients gradients;
  for (const auto& parameter : decoder.parameters()) {
    std::vector<float>& values = gradients.emplace_back(static_cast<std::size_t>(parameter->gradient.size()));
    decoder.backend().download(parameter->gradient.bytes(), std::as_writable_bytes(std::span(values)));
  }
  return gradients;
}

void GradientProducts::add(const GradientProducts& other) {
  ab += other.ab;
  aa += other.aa;
  bb += other.bb;
}

double GradientProducts::cosine() const { return ab / std::sqrt(aa * bb); }

double GradientProducts::norm_ratio() const { return std::sqrt(bb / aa); }

double GradientProducts::relative_error() const { return (aa - 2 * ab + bb) / aa; }

std::vector<GradientProducts> products_with(const Gradients& reference, Decoder& decoder) {
  const Gradients gradients = download_gradients(decoder);
  std::vector<GradientProducts> products(reference.size());
  decoder.backend().threads().parallel_for(static_cast<std::int64_t>(reference.size()), [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    products[k] = products_of(reference[k], gradients[k]);
  });
  return products;
}

GradientProducts sum(std::span<const GradientProducts> products) {
  GradientProducts all;
  for (const GradientProducts& one : products) all.add(one);
  return all;
}

}  // namespace tetrad
