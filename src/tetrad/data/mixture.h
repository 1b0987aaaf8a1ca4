// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order of samples: which source, and which of its samples. A function of the seed and of how often each
// source was drawn before, nothing else, so a run can stop and go on anywhere, and ranks share one order.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace tetrad {

struct MixtureSource {
  std::string name;
  std::int64_t samples = 0;  //!< in one epoch
};

struct MixturePhase {
  double until = 1;             //!< fraction of the run's samples
  std::vector<double> weights;  //!< one per source; 0: not in this phase
};

struct Sample {
  int source = 0;
  std::int64_t index = 0;  //!< within the source
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// All that has to be saved. By name, so that sources may be added and phases changed in between.
struct MixtureState {
  std::int64_t position = 0;                          //!< samples drawn in all
  std::int64_t phase = 0;                             //!< phase of the last sample
  std::map<std::string, std::int64_t> cursors;        //!< samples drawn from each source
  std::map<std::string, std::int64_t> phase_cursors;  //!< … in this phase
  friend bool operator==(const MixtureState&, const MixtureState&) = default;
};

void to_json(nlohmann::json& json, const MixtureState& state);
void from_json(const nlohmann::json& json, MixtureState& state);  //!< Throws Error (bad input).

class Mixture {
 public:
  /// Throws Error (bad input) if there is no source, one has no samples, or phases do not end at 1 in growing
  /// order with weights that are finite, not negative and not all 0.
  Mixture(std::vector<MixtureSource> sources, std::vector<MixturePhase> phases, std::int64_t total_samples,
          std::uint64_t seed);

  /// The next sample. After the last of the run it goes on in the last phase.
  Sample next();

  void skip(std::int64_t samples);

  std::span<const MixtureSource> sources() const { return sources_; }
  std::int64_t position() const { return position_; }
  int phase() const { return phase_of(position_); }  //!< phase of the next sample
  std::int64_t epoch(int source) const;              //!< epoch of the source's next sample
  /// Samples of the source in the whole run, give or take one for each phase.
  double planned_samples(int source) const;

  MixtureState state() const;

  /// A source that the state does not know begins at its beginning. Throws Error (bad input) if the state
  /// knows a source that is not here, or holds negative numbers.
  void restore(const MixtureState& state);

 private:
  int phase_of(std::int64_t position) const;
  int draw_source();

  std::vector<MixtureSource> sources_;
  std::int64_t total_samples_;
  std::vector<std::uint64_t> keys_;          //!< keys of the sources' permutations
  std::vector<std::int64_t> phase_ends_;     //!< in samples
  std::vector<std::vector<double>> shares_;  //!< weights of each phase, normalized
  std::int64_t position_ = 0;
  int current_phase_ = 0;  //!< the phase that phase_cursors_ count
  std::vector<std::int64_t> cursors_;
  std::vector<std::int64_t> phase_cursors_;
};

}  // namespace tetrad
