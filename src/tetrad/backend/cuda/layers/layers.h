// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of ops/ that need no folder of their own, on CUDA.

#include <span>
#include <vector>

#include "tetrad/backend/cuda/common/device.h"
#include "tetrad/ops/activation.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/ops/amax.h"
#include "tetrad/ops/centring.h"
#include "tetrad/ops/deviation.h"
#include "tetrad/ops/elementwise.h"
#include "tetrad/ops/embedding.h"
#include "tetrad/ops/loss.h"
#include "tetrad/ops/norm.h"
#include "tetrad/ops/ordered_sum.h"
#include "tetrad/ops/rope.h"

namespace tetrad::cuda {

/// The ids lie on the device, where nobody reads them twice: one outside the vocabulary gives a row of NaN.
void embedding(Device& device, const EmbeddingForward& op);
void embedding(Device& device, const EmbeddingBackward& op);

/// What a block's threads can hold of a row: more, where they get eight values at a time.
std::int64_t widest_row(const RmsNormForward& op);
std::int64_t widest_row(const RmsNormBackward& op);

void rms_norm(Device& device, const RmsNormForward& op);
void rms_norm(Device& device, const RmsNormBackward& op);
void gated_norm(Device& device, const GatedNormForward& op);
void gated_norm(Device& device, const GatedNormBackward& op);

void rope(Device& device, const Rope& op);

void activation(Device& device, const ActivationForward& op);
void activation(Device& device, const ActivationBackward& op);

void add(Device& device, const Add& op);
void cast(Device& device, const Cast& op);
void column_sums(Device& device, const ColumnSums& op);
void centre(Device& device, const Centre& op);
void add_row(Device& device, const AddRow& op);
void add_outer(Device& device, const AddOuter& op);

void cross_entropy(Device& device, const CrossEntropy& op);

void ordered_sum(Device& device, const OrderedSum& op);

/// All tensors in one launch.
void adamw(Device& device, const AdamWStep& op);
std::vector<double> squared_norms(Device& device, std::span<const AdamWTensor> tensors);
void amaxes(Device& device, const Amaxes& op);
std::vector<DeviationSums> deviations(Device& device, std::span<const DeviationTensor> tensors);

}  // namespace tetrad::cuda
