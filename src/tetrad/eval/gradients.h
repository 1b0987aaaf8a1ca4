// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of one microbatch, and how far those at one precision are from those at another.

#include <cstdint>
#include <span>
#include <vector>

#include "tetrad/data/dataset.h"
#include "tetrad/model/decoder.h"
#include "tetrad/train/config.h"

namespace tetrad {

/// [sequences, sequence] tokens.
struct Microbatch {
  std::vector<std::int32_t> inputs, targets;
  std::vector<std::int32_t> document_starts;  //!< empty: documents are not masked
};

/// Sequences of a training microbatch.
std::int64_t microbatch_sequences(const TrainConfig& train);

/// The next one of the training data.
Microbatch next_microbatch(Dataset& dataset, const TrainConfig& train);

/// Leaves the gradient of the mean loss in the decoder's parameters; returns that loss, in nats.
double differentiate(Decoder& decoder, Pass& pass, const Microbatch& batch);

/// By parameter, in the program's memory.
using Gradients = std::vector<std::vector<float>>;
Gradients download_gradients(Decoder& decoder);

/// Scalar products of a reference with something that should be the same.
struct GradientProducts {
  double ab = 0, aa = 0, bb = 0;  //!< a is the reference

  void add(const GradientProducts& other);
  double cosine() const;
  double norm_ratio() const;      //!< |b| / |a|
  double relative_error() const;  //!< |b - a|² / |a|²
};

/// Products of `reference` with the gradients that the decoder holds, by parameter.
std::vector<GradientProducts> products_with(const Gradients& reference, Decoder& decoder);

/// All parameters as one vector.
GradientProducts sum(std::span<const GradientProducts> products);

}  // namespace tetrad
