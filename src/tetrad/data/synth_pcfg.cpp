// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include "tetrad/core/error.h"
#include "tetrad/data/random_numbers.h"
#include "tetrad/data/synth_languages.h"

namespace tetrad {
namespace {

/// A probabilistic grammar with `depth` levels of rules. Level 0 has the start symbol, the others `symbols`
/// nonterminals each; what the last level yields are the tokens 1 to V − 1. Token 0 ends a sentence.
///
/// Each nonterminal has `rules` rules with random probabilities; a rule yields two or three symbols of the
/// next level. The first two are another pair for every rule of a level, so that reading from the left the
/// rule is known after two symbols, and with it where it ends: level by level from the tokens up, every
/// sentence has one derivation. So the entropy of a sentence is that of its derivation, each symbol's
/// computed from the last level up:
///   H(X) = Σ_r p_r (−ln p_r + Σ_{Y in r} H(Y)),   length L(X) = Σ_r p_r Σ_{Y in r} L(Y),
/// and the entropy rate is H(start) / (L(start) + 1), with the end of the sentence counted.
class PcfgSource final : public EpisodeSource {
 public:
  explicit PcfgSource(const SynthConfig& config)
      : vocab_(synth_vocab(config, 64, 3)),
        depth_(config.depth),
        symbols_(config.symbols),
        rules_(config.rules),
        random_(config.seed, config.stream + 1) {
    // 3^8 tokens are a long sentence; the square root says how many pairs the next level has to offer.
    TETRAD_CHECK(depth_ >= 1 && depth_ <= 8, "pcfg: the depth cannot be {}; choose 1 to 8", depth_);
    TETRAD_CHECK(
        symbols_ >= 1 && symbols_ <= 1024 && rules_ >= 1 && rules_ <= symbols_,
        "pcfg: {} rules for each of {} symbols do not work: choose 1 to 1024 symbols and at most as many "
        "rules",
        rules_, symbols_);
    TETRAD_CHECK(symbols_ * rules_ <= (vocab_ - 1) * (vocab_ - 1),
                 "pcfg: {} symbols with {} rules need a vocabulary of more than {} tokens", symbols_, rules_,
                 static_cast<std::int64_t>(std::sqrt(static_cast<double>(symbols_ * rules_))) + 1);
    RandomNumbers structure(config.seed, 0);
    for (std::int64_t level = 0; level < depth_; ++level)
      levels_.push_back(
          make_level(level == 0 ? 1 : symbols_, level + 1 == depth_ ? vocab_ - 1 : symbols_, structure));
    compute_entropy();
  }

  std::int64_t vocab() const override { return vocab_; }
  double entropy() const override { return entropy_; }
  std::map<std::string, std::int64_t> parameters() const override {
    return {{"depth", depth_}, {"symbols", symbols_}, {"rules", rules_}};
  }

 private:
  struct Rule {
    std::array<std::int32_t, 3> yields{};
    std::size_t length = 2;
    std::span<const std::int32_t> symbols() const { return std::span(yields).first(length); }
  };

  struct Symbol {
    std::vector<double> probabilities;
    std::vector<Rule> rules;
  };

  using Level = std::vector<Symbol>;

  Level make_level(std::int64_t symbols, std::int64_t below, RandomNumbers& structure) const {
    // Pairs of the next level, drawn without replacement; the vocabulary can be too large for a list of them.
    std::map<std::int64_t, std::int64_t> moved;
    const auto at = [&](std::int64_t i) { return moved.contains(i) ? moved[i] : i; };
    std::int64_t drawn = 0;
    const auto draw_pair = [&] {
      const std::int64_t other = drawn + structure.below(below * below - drawn);
      const std::int64_t pair = at(other);
      moved[other] = at(drawn++);
      return pair;
    };
    Level level(static_cast<std::size_t>(symbols));
    for (Symbol& symbol : level) {
      symbol.probabilities.resize(static_cast<std::size_t>(rules_));
      structure.fill_probabilities(symbol.probabilities);
      for (std::int64_t r = 0; r < rules_; ++r) {
        const std::int64_t pair = draw_pair();
        symbol.rules.push_back(
            {{static_cast<std::int32_t>(pair / below), static_cast<std::int32_t>(pair % below),
              static_cast<std::int32_t>(structure.below(below))},
             static_cast<std::size_t>(2 + structure.below(2))});
      }
    }
    return level;
  }

  void compute_entropy() {
    std::vector<double> nats(static_cast<std::size_t>(vocab_ - 1),
                             0.0);  // entropy of the symbols one level below
    std::vector<double> length(static_cast<std::size_t>(vocab_ - 1), 1.0);
    for (std::size_t above = levels_.size(); above-- > 0;) {
      const Level& level = levels_[above];
      std::vector<double> level_nats(level.size());
      std::vector<double> level_length(level.size());
      for (std::size_t s = 0; s < level.size(); ++s) {
        const Symbol& symbol = level[s];
        for (std::size_t r = 0; r < symbol.rules.size(); ++r) {
          const double p = symbol.probabilities[r];
          level_nats[s] -= p * std::log(p);
          for (const std::int32_t below : symbol.rules[r].symbols()) {
            level_nats[s] += p * nats[static_cast<std::size_t>(below)];
            level_length[s] += p * length[static_cast<std::size_t>(below)];
          }
        }
      }
      nats = std::move(level_nats);
      length = std::move(level_length);
    }
    entropy_ = nats[0] / (length[0] + 1);
  }

  void expand(std::size_t level, std::int32_t symbol, std::vector<std::int32_t>& sentence) {
    if (level == levels_.size()) {
      sentence.push_back(symbol + 1);
      return;
    }
    const Symbol& expanded = levels_[level][static_cast<std::size_t>(symbol)];
    for (const std::int32_t below : expanded.rules[random_.choose(expanded.probabilities)].symbols())
      expand(level + 1, below, sentence);
  }

  void next_episode(std::vector<std::int32_t>& episode) override {
    expand(0, 0, episode);
    episode.push_back(0);
  }

  std::int64_t vocab_, depth_, symbols_, rules_;
  std::vector<Level> levels_;
  double entropy_ = 0;
  RandomNumbers random_;
};

}  // namespace

std::unique_ptr<SynthSource> make_pcfg(const SynthConfig& config) {
  return std::make_unique<PcfgSource>(config);
}

}  // namespace tetrad
