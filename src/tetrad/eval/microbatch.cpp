// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/microbatch.h"

#include <algorithm>
#include <numeric>

namespace tetrad {

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

std::vector<Microbatch> heldout_microbatches(const Dataset& dataset, const TrainConfig& train,
                                             std::int64_t batches) {
  std::vector<const TokenSequences*> sources;
  std::int64_t total = 0;
  for (const std::string& name : dataset.source_names()) {
    if (const TokenSequences* source = dataset.heldout(name)) {
      sources.push_back(source);
      total += source->count();
    }
  }
  const std::int64_t rows = std::min(microbatch_sequences(train), total / batches);
  if (rows == 0) return {};
  const auto length = static_cast<std::size_t>(train.sequence);
  std::vector<Microbatch> result(static_cast<std::size_t>(batches));
  for (std::int64_t k = 0; k < batches * rows; ++k) {
    // Neighbours go to different microbatches, so that each has some of every source.
    Microbatch& batch = result[static_cast<std::size_t>(k % batches)];
    std::int64_t index = k * (total / (batches * rows));
    auto source = sources.begin();
    while (index >= (*source)->count()) index -= (*source++)->count();
    const std::size_t begin = batch.inputs.size();
    batch.inputs.resize(begin + length);
    batch.targets.resize(begin + length);
    if (dataset.masks_documents()) batch.document_starts.resize(begin + length);
    (*source)->read(index, std::span(batch.inputs).subspan(begin), std::span(batch.targets).subspan(begin),
                    std::span(batch.document_starts).subspan(dataset.masks_documents() ? begin : 0));
  }
  return result;
}

std::vector<float> token_losses(Decoder& decoder, Pass& pass, const Microbatch& batch) {
  std::vector<float> losses(batch.inputs.size());
  decoder.evaluate(pass, batch.inputs, batch.targets, losses, batch.document_starts);
  return losses;
}

void append_sequence_means(std::span<const float> losses, std::int64_t length, std::vector<double>& means) {
  const auto size = static_cast<std::size_t>(length);
  for (std::size_t first = 0; first < losses.size(); first += size) {
    const std::span<const float> sequence = losses.subspan(first, size);
    means.push_back(std::accumulate(sequence.begin(), sequence.end(), 0.0) / static_cast<double>(size));
  }
}

}  // namespace tetrad
