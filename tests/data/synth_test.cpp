// SPDX-License-Identifier: Apache-2.0
// The claimed entropy of every language, against what its tokens say.

#include "tetrad/data/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "support/errors.h"

namespace tetrad {
namespace {

using testing::expect_bad_input;
using Ids = std::vector<std::int32_t>;

SynthConfig config_of(const std::string& kind) {
  SynthConfig config;
  config.kind = kind;
  return config;
}

Ids draw(SynthSource& source, std::size_t count) {
  Ids tokens(count);
  source.generate(tokens);
  return tokens;
}

/// Entropy of the observed frequencies, in nats.
template <typename Key>
double plug_in(const std::map<Key, double>& counts) {
  double total = 0;
  for (const auto& [key, count] : counts) total += count;
  double nats = 0;
  for (const auto& [key, count] : counts) nats -= count / total * std::log(count / total);
  return nats;
}

std::vector<Ids> split_at(const Ids& tokens, std::int32_t separator) {
  std::vector<Ids> parts(1);
  for (const std::int32_t token : tokens) {
    if (token == separator)
      parts.emplace_back();
    else
      parts.back().push_back(token);
  }
  parts.pop_back();  // cut by the end of the stream
  return parts;
}

TEST(Synth, StreamsDoNotDependOnHowTheyAreReadAndDifferByStream) {
  for (const std::string_view kind : synth_kinds()) {
    SynthConfig config = config_of(std::string(kind));
    const Ids whole = draw(*make_synth(config), 1000);
    const auto source = make_synth(config);
    Ids parts;
    for (std::size_t size = 1; parts.size() < 1000; ++size) {
      const Ids part = draw(*source, std::min(size, 1000 - parts.size()));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << kind;
    for (const std::int32_t token : whole) ASSERT_TRUE(token >= 0 && token < source->vocab()) << kind;
    config.stream = 1;
    EXPECT_NE(draw(*make_synth(config), 1000), whole) << kind;
    EXPECT_EQ(make_synth(config)->entropy(), source->entropy()) << kind;
    config.stream = 0;
    config.seed = 2;
    EXPECT_NE(draw(*make_synth(config), 1000), whole) << kind;
  }
}

TEST(Synth, UniformIsUniform) {
  SynthConfig config = config_of("uniform");
  config.vocab = 50;
  const auto source = make_synth(config);
  EXPECT_DOUBLE_EQ(source->entropy(), std::log(50.0));
  std::map<Ids, double> pairs;
  const Ids tokens = draw(*source, 400'000);
  for (std::size_t i = 0; i + 1 < tokens.size(); i += 2) ++pairs[{tokens[i], tokens[i + 1]}];
  // 2500 pairs, 200,000 draws: the estimate is low by about 2500 / (2 · 200,000) = 0.006.
  EXPECT_NEAR(plug_in(pairs), 2 * source->entropy(), 0.012);
}

TEST(Synth, MarkovEntropyIsThatOfItsTransitions) {
  for (const std::int64_t branching : {2, 4, 16}) {
    SynthConfig config = config_of("markov");
    config.vocab = 16;
    config.branching = branching;
    const auto source = make_synth(config);
    constexpr std::size_t kCount = 400'000;
    const Ids tokens = draw(*source, kCount);
    std::map<Ids, double> pairs;
    std::map<std::int32_t, double> singles;
    std::map<Ids, double> triples;
    for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
      ++singles[tokens[i]];
      ++pairs[{tokens[i], tokens[i + 1]}];
      ++triples[{tokens[i], tokens[i + 1], tokens[i + 2]}];
    }
    EXPECT_EQ(std::ssize(pairs), 16 * branching);
    // −ln p of a token has a standard deviation of about 0.8: 5 σ of the mean are 0.006.
    EXPECT_NEAR(plug_in(pairs) - plug_in(singles), source->entropy(), 0.007);
    // No more can be had from two tokens back; 16³ triples make the estimate low by up to 0.005.
    EXPECT_NEAR(plug_in(triples) - plug_in(pairs), source->entropy(), 0.012);
  }
}

TEST(Synth, PcfgEntropyIsThatOfItsSentences) {
  for (const std::int64_t depth : {1, 2, 3}) {
    SynthConfig config = config_of("pcfg");
    config.depth = depth;
    config.symbols = 3;
    config.rules = 2;
    config.vocab = 6;
    const auto source = make_synth(config);
    const std::vector<Ids> sentences = split_at(draw(*source, 1'500'000), 0);
    std::map<Ids, double> counts;
    double length = 0;
    for (const Ids& sentence : sentences) {
      ++counts[sentence];
      length += static_cast<double>(sentence.size() + 1);
    }
    const auto n = static_cast<double>(sentences.size());
    length /= n;
    // Strings are counted, not derivations: an ambiguous grammar would have less entropy than claimed. The
    // first term is the known bias of the estimate (Miller, Madow).
    const double estimate = (plug_in(counts) + static_cast<double>(counts.size() - 1) / (2 * n)) / length;
    EXPECT_GT(counts.size(), depth == 1 ? 1U : 5U);
    EXPECT_NEAR(estimate, source->entropy(), 0.01 * source->entropy()) << depth << " " << counts.size();
  }
}

TEST(Synth, RecallIsAnsweredAndItsEntropyIsExact) {
  SynthConfig config = config_of("recall");
  config.vocab = 34;
  config.pairs = 5;
  config.queries = 7;
  const auto source = make_synth(config);
  constexpr std::int32_t kKeys = 16;
  constexpr std::size_t kLength = 2 + 2 * 5 + 2 * 7;
  double nats = 0;
  std::map<std::int32_t, double> keys;
  std::map<std::int32_t, double> values;
  std::map<std::int32_t, double> questions;
  constexpr int kEpisodes = 20'000;
  for (int episode = 0; episode < kEpisodes; ++episode) {
    const Ids tokens = draw(*source, kLength);
    ASSERT_EQ(tokens[0], 0);
    ASSERT_EQ(tokens[11], 1);
    std::map<std::int32_t, std::int32_t> memory;
    std::map<std::int32_t, std::int32_t> place;
    for (std::size_t i = 1; i < 11; i += 2) {
      ASSERT_TRUE(tokens[i] >= 2 && tokens[i] < 2 + kKeys);
      ASSERT_TRUE(tokens[i + 1] >= 2 + kKeys && tokens[i + 1] < 34);
      nats += std::log(static_cast<double>(kKeys) - static_cast<double>(memory.size())) + std::log(16.0);
      ASSERT_TRUE(memory.emplace(tokens[i], tokens[i + 1]).second) << "a key twice";
      place[tokens[i]] = static_cast<std::int32_t>(i);
      ++keys[tokens[i]];
      ++values[tokens[i + 1]];
    }
    for (std::size_t i = 12; i < kLength; i += 2) {
      ASSERT_TRUE(memory.contains(tokens[i]));
      ASSERT_EQ(tokens[i + 1], memory[tokens[i]]) << "wrong answer";
      ++questions[place[tokens[i]]];
      nats += std::log(5.0);
    }
  }
  EXPECT_NEAR(nats / (kEpisodes * double{kLength}), source->entropy(), 1e-9);
  // The choices really are uniform.
  EXPECT_NEAR(plug_in(keys), std::log(16.0), 0.002);
  EXPECT_NEAR(plug_in(values), std::log(16.0), 0.002);
  EXPECT_NEAR(plug_in(questions), std::log(5.0), 0.002);
}

TEST(Synth, ArithmeticIsRightAndItsEntropyIsExact) {
  for (const bool reversed : {false, true})
    for (const std::int64_t digits : {1, 2, 3}) {
      SynthConfig config = config_of("arithmetic");
      config.digits = digits;
      config.reversed = reversed;
      const auto source = make_synth(config);
      const auto limit = static_cast<std::int64_t>(std::llround(std::pow(10, digits)));
      // The mean length of a line, over all pairs of operands.
      double length = 0;
      for (std::int64_t a = 0; a < limit; ++a)
        for (std::int64_t b = 0; b < limit; ++b)
          length += static_cast<double>(std::to_string(a).size() + std::to_string(b).size() +
                                        std::to_string(a + b).size() + 3);
      length /= static_cast<double>(limit * limit);
      EXPECT_NEAR(source->entropy(), 2 * std::log(static_cast<double>(limit)) / length, 1e-12);

      std::map<std::int64_t, double> operands;
      for (const Ids& line : split_at(draw(*source, 200'000), 12)) {
        std::string text;
        for (const std::int32_t token : line) text += "0123456789+="[token];
        const std::size_t plus = text.find('+');
        const std::size_t equals = text.find('=');
        const std::string a = text.substr(0, plus);
        const std::string b = text.substr(plus + 1, equals - plus - 1);
        std::string answer = text.substr(equals + 1);
        if (reversed) answer = std::string(answer.rbegin(), answer.rend());
        ASSERT_EQ(answer, std::to_string(std::stoll(a) + std::stoll(b))) << text;
        ASSERT_EQ(a, std::to_string(std::stoll(a)));
        ++operands[std::stoll(a)];
        ++operands[std::stoll(b)];
      }
      EXPECT_NEAR(plug_in(operands), std::log(static_cast<double>(limit)), 0.025);
    }
}

TEST(Synth, RefusesParametersThatMakeNoLanguage) {
  const auto refused = [](const std::string& kind, const std::function<void(SynthConfig&)>& change,
                          const std::string& word) {
    SynthConfig config = config_of(kind);
    change(config);
    expect_bad_input([&] { make_synth(config); }, {kind, word});
  };
  refused(
      "klingon", [](SynthConfig&) {}, "markov");
  refused(
      "uniform", [](SynthConfig& c) { c.vocab = -3; }, "-3");
  refused(
      "uniform", [](SynthConfig& c) { c.vocab = 1LL << 40; }, "vocabulary");
  refused(
      "markov", [](SynthConfig& c) { c.branching = 65; }, "65");
  refused(
      "markov", [](SynthConfig& c) { c.branching = 1; }, "2");
  refused(
      "markov", [](SynthConfig& c) { c.vocab = 1 << 20; }, "65536");
  refused(
      "pcfg", [](SynthConfig& c) { c.depth = 20; }, "depth");
  refused(
      "pcfg", [](SynthConfig& c) { c.rules = 9; }, "rules");
  refused(
      "pcfg", [](SynthConfig& c) { c.vocab = 4; }, "vocabulary");
  refused(
      "recall", [](SynthConfig& c) { c.pairs = 33; }, "33");
  refused(
      "recall", [](SynthConfig& c) { c.queries = 0; }, "query");
  refused(
      "recall", [](SynthConfig& c) { c.vocab = 3; }, "3");
  refused(
      "arithmetic", [](SynthConfig& c) { c.digits = 16; }, "digits");
  refused(
      "arithmetic", [](SynthConfig& c) { c.vocab = 12; }, "12");
}

}  // namespace
}  // namespace tetrad
