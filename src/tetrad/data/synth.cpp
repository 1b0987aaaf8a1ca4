// SPDX-License-Identifier: Apache-2.0
#include "tetrad/data/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "tetrad/core/error.h"
#include "tetrad/data/random_numbers.h"
#include "tetrad/data/synth_languages.h"

namespace tetrad {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"markov", "pcfg", "recall", "arithmetic", "uniform"};
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 20;

/// Every token is as likely as any other, whatever came before: entropy ln V. Nothing can be learned.
class UniformSource final : public SynthSource {
 public:
  explicit UniformSource(const SynthConfig& config)
      : vocab_(synth_vocab(config, 256, 1)), random_(config.seed, config.stream + 1) {}

  std::int64_t vocab() const override { return vocab_; }
  double entropy() const override { return std::log(static_cast<double>(vocab_)); }
  std::map<std::string, std::int64_t> parameters() const override { return {}; }
  void generate(std::span<std::int32_t> tokens) override {
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random_.below(vocab_));
  }

 private:
  std::int64_t vocab_;
  RandomNumbers random_;
};

/// Associative recall. An episode is
///   0  k v k v … (`pairs` times)  1  k v k v … (`queries` times)
/// Token 0 begins an episode and 1 its questions; keys and values have ids of their own. The keys of an
/// episode are distinct, all choices uniform; a question is one of the keys, and the value after it is the
/// answer. Entropy of an episode: ln K + ln(K−1) + … for the keys, pairs · ln V for the values, queries ·
/// ln(pairs) for the questions and 0 for answers, 0 and 1; divided by its fixed length 2 + 2·pairs +
/// 2·queries.
class RecallSource final : public EpisodeSource {
 public:
  explicit RecallSource(const SynthConfig& config)
      : vocab_(synth_vocab(config, 66, 4)),
        keys_((vocab_ - kFirstKey) / 2),
        values_(vocab_ - kFirstKey - keys_),
        pairs_(config.pairs),
        queries_(config.queries),
        random_(config.seed, config.stream + 1) {
    TETRAD_CHECK(
        pairs_ >= 1 && pairs_ <= keys_ && queries_ >= 1 && queries_ <= 1 << 20,
        "recall: {} pairs and {} queries do not work with {} keys (half of the vocabulary): choose 1 to {} "
        "pairs and at least 1 query",
        pairs_, queries_, keys_, keys_);
    for (std::int64_t i = 0; i < keys_; ++i) shuffled_.push_back(static_cast<std::int32_t>(kFirstKey + i));
  }

  std::int64_t vocab() const override { return vocab_; }
  double entropy() const override {
    double nats = static_cast<double>(pairs_) * std::log(static_cast<double>(values_)) +
                  static_cast<double>(queries_) * std::log(static_cast<double>(pairs_));
    for (std::int64_t i = 0; i < pairs_; ++i) nats += std::log(static_cast<double>(keys_ - i));
    return nats / static_cast<double>(2 + 2 * pairs_ + 2 * queries_);
  }
  std::map<std::string, std::int64_t> parameters() const override {
    return {{"pairs", pairs_}, {"queries", queries_}, {"keys", keys_}, {"values", values_}};
  }

 private:
  static constexpr std::int64_t kFirstKey = 2;

  void next_episode(std::vector<std::int32_t>& episode) override {
    const auto pairs = static_cast<std::size_t>(pairs_);
    std::vector<std::int32_t> answers(pairs);
    random_.shuffle_front(std::span(shuffled_), pairs);
    episode.push_back(0);
    for (std::size_t i = 0; i < pairs; ++i) {
      answers[i] = static_cast<std::int32_t>(kFirstKey + keys_ + random_.below(values_));
      episode.insert(episode.end(), {shuffled_[i], answers[i]});
    }
    episode.push_back(1);
    for (std::int64_t i = 0; i < queries_; ++i) {
      const auto asked = static_cast<std::size_t>(random_.below(pairs_));
      episode.insert(episode.end(), {shuffled_[asked], answers[asked]});
    }
  }

  std::int64_t vocab_, keys_, values_, pairs_, queries_;
  std::vector<std::int32_t> shuffled_;  //!< all keys; the first ones are those of the episode
  RandomNumbers random_;
};

/// Addition: "a+b=c" and a newline. Tokens 0 to 9 are the digits, 10 is '+', 11 '=' and 12 the newline.
/// Operands are uniform from 0 to 10^digits − 1 and written without leading zeros; the answer follows from
/// them. Entropy of a line: 2 · digits · ln 10. Its mean length, with N = 10^digits: a number x below N has
/// 1 + #{k ≥ 1: x ≥ 10^k} digits, and of the N² pairs M(M+1)/2 have a sum below M = 10^k ≤ N; hence
///   2 · (1 + Σ_{k=1}^{digits−1} (1 − 10^k/N)) + (1 + Σ_{k=1}^{digits} (1 − M(M+1)/(2N²))) + 3.
class ArithmeticSource final : public EpisodeSource {
 public:
  explicit ArithmeticSource(const SynthConfig& config)
      : vocab_(synth_vocab(config, 13, 13)),
        digits_(config.digits),
        reversed_(config.reversed),
        random_(config.seed, config.stream + 1) {
    TETRAD_CHECK(digits_ >= 1 && digits_ <= 15, "arithmetic: operands cannot have {} digits; choose 1 to 15",
                 digits_);
    limit_ = 1;
    for (std::int64_t i = 0; i < digits_; ++i) limit_ *= 10;
  }

  std::int64_t vocab() const override { return vocab_; }
  double entropy() const override {
    const auto n = static_cast<double>(limit_);
    double length = 3 + 2 + 1;
    double m = 10;
    for (std::int64_t k = 1; k <= digits_; ++k, m *= 10) {
      if (k < digits_) length += 2 * (1 - m / n);
      length += 1 - m * (m + 1) / (2 * n * n);
    }
    return 2 * static_cast<double>(digits_) * std::numbers::ln10 / length;
  }
  std::map<std::string, std::int64_t> parameters() const override {
    return {{"digits", digits_}, {"reversed", reversed_ ? 1 : 0}};
  }

 private:
  enum Sign : std::int32_t { plus = 10, equals = 11, newline = 12 };

  static std::vector<std::int32_t> digits_of(std::int64_t number) {
    std::vector<std::int32_t> digits;
    do {
      digits.insert(digits.begin(), static_cast<std::int32_t>(number % 10));
      number /= 10;
    } while (number > 0);
    return digits;
  }

  void next_episode(std::vector<std::int32_t>& episode) override {
    const std::int64_t a = random_.below(limit_);
    const std::int64_t b = random_.below(limit_);
    const auto write = [&](const std::vector<std::int32_t>& digits, Sign sign) {
      episode.insert(episode.end(), digits.begin(), digits.end());
      episode.push_back(sign);
    };
    write(digits_of(a), plus);
    write(digits_of(b), equals);
    std::vector<std::int32_t> answer = digits_of(a + b);
    if (reversed_) std::ranges::reverse(answer);
    write(answer, newline);
  }

  std::int64_t vocab_, digits_;
  bool reversed_;
  std::int64_t limit_ = 1;
  RandomNumbers random_;
};

}  // namespace

std::int64_t synth_vocab(const SynthConfig& config, std::int64_t usual, std::int64_t least) {
  const std::int64_t vocab = config.vocab == 0 ? usual : config.vocab;
  TETRAD_CHECK(vocab >= least && vocab <= kMaxVocab, "{}: a vocabulary of {} does not work; choose {} to {}",
               config.kind, vocab, least, kMaxVocab);
  return vocab;
}

void EpisodeSource::generate(std::span<std::int32_t> tokens) {
  for (std::int32_t& token : tokens) {
    if (used_ == episode_.size()) {
      episode_.clear();
      used_ = 0;
      next_episode(episode_);
    }
    token = episode_[used_++];
  }
}

std::span<const std::string_view> synth_kinds() { return kKinds; }

std::unique_ptr<SynthSource> make_synth(const SynthConfig& config) {
  if (config.kind == "markov") return make_markov(config);
  if (config.kind == "pcfg") return make_pcfg(config);
  if (config.kind == "recall") return std::make_unique<RecallSource>(config);
  if (config.kind == "arithmetic") return std::make_unique<ArithmeticSource>(config);
  if (config.kind == "uniform") return std::make_unique<UniformSource>(config);
  fail("there is no synthetic language {:?}; there are {}", config.kind, fmt::join(kKinds, ", "));
}

}  // namespace tetrad
