// SPDX-License-Identifier: Apache-2.0
#include "tetrad/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "tetrad/core/checked.h"
#include "tetrad/parallel/agreement.h"
#include "tetrad/parallel/self_communicator.h"

namespace tetrad {

double Evaluation::perplexity() const { return std::exp(loss); }

Evaluation evaluate(Decoder& decoder, Pass& pass, const TokenSequences& data, std::int64_t batch,
                    std::int64_t sequences) {
  SelfCommunicator alone;
  return evaluate(alone, decoder, pass, data, batch, sequences);
}

Evaluation evaluate(Communicator& ranks, Decoder& decoder, Pass& pass, const TokenSequences& data,
                    std::int64_t batch, std::int64_t sequences) {
  const std::int64_t total = sequences > 0 ? std::min(sequences, data.count()) : data.count();
  const auto length = static_cast<std::size_t>(data.sequence());
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch) * length);
  std::vector<std::int32_t> targets(inputs.size());
  std::vector<std::int32_t> document_starts(data.masks_documents() ? inputs.size() : 0);
  std::vector<float> losses(inputs.size());
  const auto part = [](auto& all, std::size_t begin, std::size_t size) {
    return all.empty() ? std::span<std::int32_t>() : std::span(all).subspan(begin, size);
  };
  const auto sum_of_batch = [&](std::int64_t index) {
    const std::int64_t first = index * batch;
    const auto count = static_cast<std::size_t>(std::min(batch, total - first));
    for (std::size_t row = 0; row < count; ++row)
      data.read(first + static_cast<std::int64_t>(row), part(inputs, row * length, length),
                part(targets, row * length, length), part(document_starts, row * length, length));
    const std::size_t tokens = count * length;
    decoder.evaluate(pass, part(inputs, 0, tokens), part(targets, 0, tokens), std::span(losses).first(tokens),
                     part(document_starts, 0, tokens));
    return std::accumulate(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(tokens), 0.0);
  };
  const std::vector<double> sums = dealt(ranks, ceil_div(total, batch), sum_of_batch);
  Evaluation result;
  result.tokens = total * data.sequence();
  result.loss = std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(result.tokens);
  if (const std::optional<double> bytes = data.bytes_per_token())
    result.bits_per_byte = result.loss / std::numbers::ln2 / *bytes;
  if (const std::optional<double> entropy = data.entropy()) result.excess_nats = result.loss - *entropy;
  return result;
}

PrecisionConfig unquantized(const PrecisionConfig& precision) {
  PrecisionConfig config;
  config.recipe = "bf16";
  config.storage = precision.storage;
  return config;
}

bool quantizes_forward(Decoder& decoder, const Recipe& recipe, double progress) {
  return std::ranges::any_of(decoder.linears(), [&](const Linear* linear) {
    const LinearPrecision& precision = recipe.at(linear->layer_id(), progress);
    return precision[Operand::fprop_x] || precision[Operand::fprop_w];
  });
}

}  // namespace tetrad
