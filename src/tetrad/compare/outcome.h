// SPDX-License-Identifier: Apache-2.0
#pragma once
// What came out of a comparison's trials, arm by arm, with the statistics that a verdict rests on.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tetrad/compare/machine.h"
#include "tetrad/compare/statistics.h"
#include "tetrad/compare/trials.h"
#include "tetrad/plot/run_metrics.h"

namespace tetrad {

struct TrialOutcome {
  const Trial* trial = nullptr;
  std::string ending;  //!< finished, diverged, running (has made steps), missing
  RunMetrics metrics;  //!< empty if missing
  std::optional<Machine> machine = {};
  std::int64_t trunk_tokens = 0;  //!< that it did not train itself

  bool has_ended() const { return ending == "finished" || ending == "diverged"; }
};

/// Of an arm to the reference.
struct ArmGap {
  PairedGap gap;    //!< percent of the reference's loss
  double nats = 0;  //!< its mean
};

/// Held-out loss of one source at the end of the runs.
struct SourceOutcome {
  std::string source;
  double loss = 0;  //!< mean over the arm's runs
  ArmGap gap;
  std::optional<double> bits_per_byte;  //!< this and the next: means too
  std::optional<double> excess_nats;
  std::optional<double> bf16_loss;  //!< with the forward pass in BF16; nothing: that is what it was
};

/// The loss of some steps.
struct WindowOutcome {
  std::string name;   //!< heldout, last, first
  std::string title;  //!< in words
  ArmGap gap;
};

/// Of one learning rate and mix.
struct FacetOutcome {
  double lr_factor = 1;
  std::string mix;
  ArmGap gap;
};

struct ArmOutcome {
  std::string name;
  Verdict verdict = Verdict::undecided;
  std::string text;                    //!< the verdict in words
  ArmGap gap;                          //!< of the primary window
  std::vector<WindowOutcome> windows;  //!< the primary one first
  std::vector<FacetOutcome> facets;    //!< of the primary window; empty: there is but one
  std::int64_t ended = 0;              //!< trials
  std::int64_t divergences = 0;
  double divergence_bound = 1;  //!< upper bound of the probability
  std::int64_t spikes = 0;
  double spikes_per_million_tokens = 0;
  std::int64_t skipped_steps = 0;
  std::vector<SourceOutcome> sources;
  double tokens_per_s = 0;  //!< medians over steps, means over runs; this and the next: 0 if unknown
  double tflops = 0;
  std::optional<double> utilisation;  //!< tflops beside those of a large product on the same machine;
                                      //!< nothing: unknown, also if that product was slower
  double memory_bytes = 0;
  double checkpoint_seconds = 0;
  double checkpoint_bytes = 0;
  std::optional<double> joules_per_token;
  std::optional<double> device_busy;  //!< share of the time
  /// Tokens to the same loss, of the reference's: how much earlier the reference had the loss that this arm
  /// ended with, by its curve; over 1 is worse. A learning rate that falls at the end makes a gap look
  /// smaller in tokens than it is.
  std::optional<double> tokens_to_reference_loss;
  std::vector<TrialOutcome> trials;
};

/// Reads what the trials have written so far, and judges all arms beside arms[reference].
std::vector<ArmOutcome> read_outcomes(const Comparison& comparison, const std::filesystem::path& folder,
                                      std::size_t reference = 0);

}  // namespace tetrad
