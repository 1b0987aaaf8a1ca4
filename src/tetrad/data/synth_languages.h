// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the synthetic languages share. Not for users of data/.

#include <memory>
#include <vector>

#include "tetrad/data/synth.h"

namespace tetrad {

/// Independent pieces, one after the other. The entropy rate of such a stream is the entropy of a piece over
/// its mean length, provided that the pieces can be separated again.
class EpisodeSource : public SynthSource {
 public:
  void generate(std::span<std::int32_t> tokens) final;

 protected:
  virtual void next_episode(std::vector<std::int32_t>& episode) = 0;

 private:
  std::vector<std::int32_t> episode_;
  std::size_t used_ = 0;
};

std::unique_ptr<SynthSource> make_markov(const SynthConfig& config);
std::unique_ptr<SynthSource> make_pcfg(const SynthConfig& config);

/// The vocabulary asked for, or the usual one. Throws Error (bad input) if it is less than `least`.
std::int64_t synth_vocab(const SynthConfig& config, std::int64_t usual, std::int64_t least);

}  // namespace tetrad
