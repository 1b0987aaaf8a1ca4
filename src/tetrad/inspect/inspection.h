// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a 4-bit recipe loses in a model as it is now, layer by layer, and what it would gain to keep some
// layers in BF16 or FP8: measured, not estimated.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/inspect/choice.h"
#include "tetrad/inspect/levels.h"
#include "tetrad/inspect/probes.h"

namespace tetrad {

struct InspectOptions {
  bool by_block = false;
  double budget = 0.15;     //!< fraction of the linear layers' FLOP in BF16; FP8 counts half
  std::int64_t draws = 16;  //!< of random numbers, for the noise of the backward pass
  /// Passes that this rank has done, and that the first will do. May throw to stop.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// What the backward pass adds to gradients, beside the same forward pass without it, over all draws;
/// relative to the squared norm (eval/gradient_noise.h).
struct NoiseReport {
  Estimate bias;  //!< squared
  Estimate variance;
};

/// A set of kept layers, all together, against BF16.
struct SetReport {
  HighPrecisionConfig kept;
  Estimate gradient_error;
  Estimate loss;  //!< excess, in nats
  Estimate cosine;
  std::optional<NoiseReport> backward;  //!< all parameters as one; nothing: fprop's operands are transformed
  double bf16_share = 0;                //!< fraction of the linear layers' FLOP
  double fp8_share = 0;
  double weight_bytes = 0;  //!< all linear layers, each in the format of its forward pass

  double cost() const { return bf16_share + kFp8Cost * fp8_share; }
};

struct UnitReport {
  Unit unit;
  Level now = Level::quantized;  //!< in today's set
  Level suggested = Level::quantized;
  Gain bf16;  //!< what keeping it alone gains over nothing kept
  std::optional<Gain> fp8;
  std::optional<Gain> in_todays_set;    //!< what quantizing it would lose, if today's set keeps it
  std::optional<NoiseReport> backward;  //!< of its own weights' gradients, if nothing is kept
  double bf16_bytes = 0;                //!< that its weights are larger by
  double fp8_bytes = 0;
};

struct OperandReport {
  OperandStats stats;            //!< as if nothing was kept
  Level now = Level::quantized;  //!< its layer's level in today's set
};

struct Inspection {
  std::string forward, backward;     //!< recipes
  double reference_loss = 0;         //!< in BF16, nats
  std::size_t sequences = 0;         //!< behind the losses
  std::vector<OperandReport> worst;  //!< by SQNR, the lowest first
  std::vector<std::string> layers;   //!< in the order of the model
  std::vector<UnitReport> units;     //!< in the order of the model
  SetReport nothing, today, suggested;
  Gain gain;  //!< what the suggested set gains over today's
  Advice verdict = Advice::keep_today;

  const SetReport& recommended() const {
    return verdict == Advice::better || verdict == Advice::as_good ? suggested : today;
  }
};

/// The decoder holds the weights; `pass` says where in the run they are from (seed, step, progress). `ranks`
/// share the passes: each has the same weights and data, and all get the same results, which are those of
/// one. Throws Error (bad input) if nothing is quantized at that point.
Inspection inspect(Communicator& ranks, Decoder& decoder, const PrecisionConfig& precision,
                   const ProbeData& data, const Pass& pass, const InspectOptions& options);

}  // namespace tetrad
