// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of one microbatch, and how far those at one precision are from those at another. They stay in the
// backend's memory: sums are all that is read back.

#include <span>
#include <vector>

#include "tetrad/eval/microbatch.h"

namespace tetrad {

/// Leaves the gradient of the mean loss in the decoder's parameters; returns the losses of the tokens, in
/// nats.
std::vector<float> differentiate(Decoder& decoder, Pass& pass, const Microbatch& batch);

/// As large as the gradients of all parameters, in the backend's memory and in their order.
using Gradients = std::vector<Tensor>;

/// Room for them, all zero.
Gradients make_gradients(Decoder& decoder);
/// Copies what the decoder holds now.
void keep_gradients(Decoder& decoder, Gradients& copy);

/// How far the decoder's gradients are from `reference`, by parameter; adds the deviations to `sum`, unless
/// it is null.
std::vector<DeviationSums> deviations(Decoder& decoder, const Gradients& reference, Gradients* sum = nullptr);

/// |gradients|², by parameter.
std::vector<double> squares(Backend& backend, const Gradients& gradients);

/// All parameters as one vector.
DeviationSums sum(std::span<const DeviationSums> parts);

/// Of g beside its reference r, where d = g - r.
double relative_error(const DeviationSums& sums);  //!< |d|² / |r|²
double cosine(const DeviationSums& sums);
double norm_ratio(const DeviationSums& sums);  //!< |g| / |r|

}  // namespace tetrad
