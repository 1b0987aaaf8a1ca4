// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tetrad/core/error.h"
#include "tetrad/core/hash.h"
#include "tetrad/data/permutation.h"
#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

constexpr std::int64_t kMaxSamples = std::int64_t{1} << 60;

std::vector<double> normalized(const std::vector<double>& weights, std::size_t sources, std::size_t phase) {
  TETRAD_CHECK(weights.size() == sources, "phase {} of the data has {} weights for {} sources", phase,
               weights.size(), sources);
  double sum = 0;
  for (const double weight : weights) {
    TETRAD_CHECK(std::isfinite(weight) && weight >= 0,
                 "phase {} of the data has the weight {}; weights are finite and not negative", phase,
                 weight);
    sum += weight;
  }
  TETRAD_CHECK(sum > 0 && std::isfinite(sum), "the weights of phase {} of the data sum to {}", phase, sum);
  std::vector<double> shares = weights;
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

void to_json(nlohmann::json& json, const MixtureState& state) {
  json = {{"position", state.position},
          {"phase", state.phase},
          {"cursors", state.cursors},
          {"phase_cursors", state.phase_cursors}};
}

void from_json(const nlohmann::json& json, MixtureState& state) {
  const auto count = [](const nlohmann::json& value, std::string_view what) {
    return checked_integer(value, fmt::format("the saved position in the data: {}", what), 0, kMaxSamples);
  };
  const auto counts = [&](std::string_view key) {
    const nlohmann::json& object = member_of(json, key);
    TETRAD_CHECK(object.is_object(), "the saved position in the data has no {}", key);
    std::map<std::string, std::int64_t> result;
    for (const auto& [name, value] : object.items())
      result[name] = count(value, fmt::format("{} of {:?}", key, name));
    return result;
  };
  state.position = count(member_of(json, "position"), "position");
  state.phase = count(member_of(json, "phase"), "phase");
  state.cursors = counts("cursors");
  state.phase_cursors = counts("phase_cursors");
}

Mixture::Mixture(std::vector<MixtureSource> sources, std::vector<MixturePhase> phases,
                 std::int64_t total_samples, std::uint64_t seed)
    : sources_(std::move(sources)),
      total_samples_(total_samples),
      cursors_(sources_.size()),
      phase_cursors_(sources_.size()) {
  TETRAD_CHECK(!sources_.empty(), "there is no data source; name at least one");
  TETRAD_CHECK(total_samples >= 0 && total_samples <= kMaxSamples, "a run cannot have {} samples",
               total_samples);
  std::set<std::string> names;
  for (const MixtureSource& source : sources_) {
    TETRAD_CHECK(source.samples > 0 && source.samples <= kMaxSamples, "data source {:?} has no samples",
                 source.name);
    TETRAD_CHECK(names.insert(source.name).second, "there are two data sources {:?}", source.name);
    keys_.push_back(Hash64().add(seed).add(source.name).value());
  }
  double before = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const double until = phases[i].until;
    TETRAD_CHECK(
        until > before && until <= 1,
        "phase {} of the data goes until {}, which is not between the end of the one before it ({}) and 1", i,
        until, before);
    before = until;
    // The last phase has no end: a run that goes on beyond its total stays in it.
    phase_ends_.push_back(i + 1 == phases.size() ? std::numeric_limits<std::int64_t>::max()
                                                 : std::llround(until * static_cast<double>(total_samples)));
    shares_.push_back(normalized(phases[i].weights, sources_.size(), i));
  }
  TETRAD_CHECK(before == 1, "the last phase of the data goes until {}; it must go until 1", before);
}

int Mixture::phase_of(std::int64_t position) const {
  return static_cast<int>(std::ranges::upper_bound(phase_ends_, position) - phase_ends_.begin());
}

std::int64_t Mixture::epoch(int source) const {
  const auto s = static_cast<std::size_t>(source);
  return cursors_[s] / sources_[s].samples;
}

double Mixture::planned_samples(int source) const {
  double samples = 0;
  std::int64_t begin = 0;
  for (std::size_t phase = 0; phase < shares_.size(); ++phase) {
    const std::int64_t end = std::min(phase_ends_[phase], total_samples_);
    samples += shares_[phase][static_cast<std::size_t>(source)] * static_cast<double>(end - begin);
    begin = end;
  }
  return samples;
}

/// Tijdeman's solution of the chairman assignment problem: after every sample of a phase, every source has
/// been drawn its share of them, give or take less than one. Among the sources that are not ahead, the one
/// whose turn would be overdue first; of equals, the first.
int Mixture::draw_source() {
  const std::vector<double>& shares = shares_[static_cast<std::size_t>(current_phase_)];
  const auto used = std::ranges::count_if(shares, [](double share) { return share > 0; });
  const double slack = used > 1 ? 1.0 / static_cast<double>(2 * used - 2) : 0.0;
  const auto drawn =
      static_cast<double>(std::accumulate(phase_cursors_.begin(), phase_cursors_.end(), std::int64_t{0}) + 1);
  int best = -1;
  double best_deadline = 0;
  int most_behind = -1;
  double largest_lag = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0) continue;
    const double lag = shares[i] * drawn - static_cast<double>(phase_cursors_[i]);
    if (most_behind < 0 || lag > largest_lag) {
      most_behind = static_cast<int>(i);
      largest_lag = lag;
    }
    const double deadline = (1 - slack - lag) / shares[i];
    if (lag >= slack && (best < 0 || deadline < best_deadline)) {
      best = static_cast<int>(i);
      best_deadline = deadline;
    }
  }
  return best >= 0 ? best : most_behind;  // after rounding, every source can be ahead
}

Sample Mixture::next() {
  if (const int phase = phase_of(position_); phase != current_phase_) {
    current_phase_ = phase;
    std::ranges::fill(phase_cursors_, 0);
  }
  const int source = draw_source();
  const auto s = static_cast<std::size_t>(source);
  const std::int64_t cursor = cursors_[s]++;
  ++phase_cursors_[s];
  ++position_;
  const std::int64_t samples = sources_[s].samples;
  return {source,
          permuted(cursor % samples, samples, keys_[s], static_cast<std::uint64_t>(cursor / samples))};
}

void Mixture::skip(std::int64_t samples) {
  for (std::int64_t i = 0; i < samples; ++i) next();
}

MixtureState Mixture::state() const {
  MixtureState state{.position = position_, .phase = current_phase_, .cursors = {}, .phase_cursors = {}};
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    state.cursors[sources_[i].name] = cursors_[i];
    state.phase_cursors[sources_[i].name] = phase_cursors_[i];
  }
  return state;
}

void Mixture::restore(const MixtureState& state) {
  std::vector<std::int64_t> cursors(sources_.size());
  std::vector<std::int64_t> phase_cursors(sources_.size());
  const auto take = [&](const std::map<std::string, std::int64_t>& from, std::vector<std::int64_t>& to) {
    for (const auto& [name, cursor] : from) {
      const auto found = std::ranges::find(sources_, name, &MixtureSource::name);
      TETRAD_CHECK(
          found != sources_.end(),
          "the saved position in the data knows the source {:?}, which the configuration lacks: keep it "
          "there, without a weight if it is no longer wanted",
          name);
      TETRAD_CHECK(cursor >= 0 && cursor <= kMaxSamples,
                   "the saved position in the data has the cursor {} for source {:?}", cursor, name);
      to[static_cast<std::size_t>(found - sources_.begin())] = cursor;
    }
  };
  TETRAD_CHECK(state.position >= 0 && state.position <= kMaxSamples && state.phase >= 0,
               "the saved position in the data is {}, in phase {}", state.position, state.phase);
  take(state.cursors, cursors);
  take(state.phase_cursors, phase_cursors);
  cursors_ = std::move(cursors);
  phase_cursors_ = std::move(phase_cursors);
  position_ = state.position;
  // A phase that the configuration no longer has is over, and its counts with it.
  current_phase_ = static_cast<int>(std::min<std::int64_t>(state.phase, std::numeric_limits<int>::max()));
}

}  // namespace tetrad
