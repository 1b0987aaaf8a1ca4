// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tetrad/core/error.h"
#include "tetrad/data/random_numbers.h"
#include "tetrad/data/synth_languages.h"

namespace tetrad {
namespace {

/// An order-1 Markov chain: each token has a few successors with random probabilities. One of them is the
/// next id, so that every token can be reached from every other and there is one stationary distribution π.
/// Entropy: Σ_s π_s · H(successors of s). The stream begins with a token drawn from π, so it is stationary.
class MarkovSource final : public SynthSource {
 public:
  explicit MarkovSource(const SynthConfig& config)
      : vocab_(synth_vocab(config, 64, 2)),
        branching_(config.branching),
        random_(config.seed, config.stream + 1) {
    TETRAD_CHECK(
        branching_ >= 2 && branching_ <= vocab_ && vocab_ <= 1 << 16 && vocab_ * branching_ <= 1 << 26,
        "markov: {} successors do not work with a vocabulary of {}: choose at most 65536 tokens, and from 2 "
        "to all of them as successors (at most 67108864 in all)",
        branching_, vocab_);
    RandomNumbers structure(config.seed, 0);
    make_transitions(structure);
    find_stationary();
  }

  std::int64_t vocab() const override { return vocab_; }

  double entropy() const override {
    double nats = 0;
    for (std::size_t s = 0; s < stationary_.size(); ++s)
      for (const double p : probabilities_of(s)) nats -= stationary_[s] * p * std::log(p);
    return nats;
  }

  std::map<std::string, std::int64_t> parameters() const override { return {{"branching", branching_}}; }

  void generate(std::span<std::int32_t> tokens) override {
    for (std::int32_t& token : tokens) {
      if (state_ < 0) {
        state_ = static_cast<std::int32_t>(random_.choose(stationary_));
      } else {
        const auto s = static_cast<std::size_t>(state_);
        state_ = successors_of(s)[random_.choose(probabilities_of(s))];
      }
      token = state_;
    }
  }

 private:
  void make_transitions(RandomNumbers& structure) {
    const auto states = static_cast<std::size_t>(vocab_);
    const auto branching = static_cast<std::size_t>(branching_);
    successors_.resize(states * branching);
    probabilities_.resize(states * branching);
    std::vector<std::int32_t> others(states);
    for (std::size_t s = 0; s < states; ++s) {
      for (std::size_t i = 0; i < states; ++i) others[i] = static_cast<std::int32_t>(i);
      std::swap(others[0], others[s + 1 == states ? 0 : s + 1]);
      structure.shuffle_front(std::span(others).subspan(1), branching - 1);
      std::copy_n(others.begin(), branching,
                  successors_.begin() + static_cast<std::ptrdiff_t>(s * branching));
      structure.fill_probabilities(std::span(probabilities_).subspan(s * branching, branching));
    }
  }

  /// Power iteration; averaging with the step before makes it converge for periodic chains too.
  void find_stationary() {
    constexpr int kMaxSteps = 1'000'000;
    const auto states = static_cast<std::size_t>(vocab_);
    stationary_.assign(states, 1.0 / static_cast<double>(vocab_));
    std::vector<double> next(states);
    for (int step = 0; step < kMaxSteps; ++step) {
      std::ranges::fill(next, 0.0);
      for (std::size_t s = 0; s < states; ++s)
        for (std::size_t i = 0; i < probabilities_of(s).size(); ++i)
          next[static_cast<std::size_t>(successors_of(s)[i])] += stationary_[s] * probabilities_of(s)[i];
      double change = 0;
      for (std::size_t s = 0; s < states; ++s) {
        change += std::abs(next[s] - stationary_[s]);
        stationary_[s] = 0.5 * (next[s] + stationary_[s]);
      }
      if (change < 1e-13) return;
    }
    fail("markov: the stationary distribution was not found; choose another seed or more successors");
  }

  std::span<const std::int32_t> successors_of(std::size_t state) const {
    const auto branching = static_cast<std::size_t>(branching_);
    return std::span(successors_).subspan(state * branching, branching);
  }
  std::span<const double> probabilities_of(std::size_t state) const {
    const auto branching = static_cast<std::size_t>(branching_);
    return std::span(probabilities_).subspan(state * branching, branching);
  }

  std::int64_t vocab_, branching_;
  std::vector<std::int32_t> successors_;  //!< [vocab, branching]
  std::vector<double> probabilities_;     //!< [vocab, branching]
  std::vector<double> stationary_;
  RandomNumbers random_;
  std::int32_t state_ = -1;
};

}  // namespace

std::unique_ptr<SynthSource> make_markov(const SynthConfig& config) {
  return std::make_unique<MarkovSource>(config);
}

}  // namespace tetrad
