// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss of a model on held-out tokens.

#include <cstdint>
#include <optional>

#include "tetrad/data/dataset.h"
#include "tetrad/model/decoder.h"
#include "tetrad/ops/communicator.h"

namespace tetrad {

struct Evaluation {
  double loss = 0;  //!< mean, in nats per token
  std::int64_t tokens = 0;
  std::optional<double> bits_per_byte;  //!< where it is known how many bytes of text a token stands for
  std::optional<double> excess_nats;    //!< over the true entropy, where it is known

  double perplexity() const;
};

/// The first `sequences` sequences (all, if 0 or fewer are there), `batch` at a time. `ranks` share them; the
/// result is that of one.
Evaluation evaluate(Communicator& ranks, Decoder& decoder, Pass& pass, const TokenSequences& data,
                    std::int64_t batch, std::int64_t sequences);
/// Alone.
Evaluation evaluate(Decoder& decoder, Pass& pass, const TokenSequences& data, std::int64_t batch,
                    std::int64_t sequences);

/// The same with nothing quantized.
PrecisionConfig unquantized(const PrecisionConfig& precision);

/// Whether something of the forward pass is quantized at this point of training.
bool quantizes_forward(Decoder& decoder, const Recipe& recipe, double progress);

}  // namespace tetrad
