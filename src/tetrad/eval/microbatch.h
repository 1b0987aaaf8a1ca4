// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens to measure a model on, and its losses on them.

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

/// So many, with sequences from all held-out tokens, evenly spread and none twice; nothing if there are too
/// few.
std::vector<Microbatch> heldout_microbatches(const Dataset& dataset, const TrainConfig& train,
                                             std::int64_t batches);

/// The losses of the tokens, in nats.
std::vector<float> token_losses(Decoder& decoder, Pass& pass, const Microbatch& batch);

/// The mean of each sequence of `length` tokens, appended to `means`. What differs between two precisions is
/// paired by token, but tokens of a sequence are not independent: so sequences are what errors are estimated
/// from, and the mean of a sequence's differences is the difference of its means.
void append_sequence_means(std::span<const float> losses, std::int64_t length, std::vector<double>& means);

}  // namespace tetrad
