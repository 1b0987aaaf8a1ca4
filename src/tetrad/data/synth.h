// SPDX-License-Identifier: Apache-2.0
#pragma once
// Languages whose entropy is known, so that a training run can report how far it is from the best possible
// loss.
//
// "Entropy" is the entropy rate of the stream in nats per token: the mean loss of a reader who knows the
// language and all tokens before. A model that sees only a window does a little worse, because a window
// begins anywhere and hides what came before it; how much depends on the language and the window.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tetrad {

/// The language is chosen by the seed; `stream` chooses what is said in it, so that training and held-out
/// tokens can be different texts in one language.
struct SynthConfig {
  std::string kind;        //!< one of synth_kinds()
  std::int64_t vocab = 0;  //!< 0: what suits the kind
  std::uint64_t seed = 1;
  std::uint32_t stream = 0;
  std::int64_t branching = 8;  //!< markov: successors of each token
  std::int64_t depth = 4;      //!< pcfg: levels of rules
  std::int64_t symbols = 8;    //!< pcfg: nonterminals on each level
  std::int64_t rules = 4;      //!< pcfg: of each nonterminal
  std::int64_t pairs = 8;      //!< recall: keys with values in an episode
  std::int64_t queries = 8;    //!< recall: of an episode
  std::int64_t digits = 2;     //!< arithmetic: of the operands, at most
  bool reversed = false;       //!< arithmetic: the answer's last digit first
};

/// An endless stream of tokens.
class SynthSource {
 public:
  SynthSource() = default;
  SynthSource(const SynthSource&) = delete;
  SynthSource& operator=(const SynthSource&) = delete;
  virtual ~SynthSource() = default;

  virtual std::int64_t vocab() const = 0;
  virtual double entropy() const = 0;  //!< nats per token
  virtual std::map<std::string, std::int64_t> parameters() const = 0;

  /// The next tokens; the stream does not depend on how it is cut into calls.
  virtual void generate(std::span<std::int32_t> tokens) = 0;
};

std::span<const std::string_view> synth_kinds();

/// Throws Error (bad input) if the parameters do not make a language.
std::unique_ptr<SynthSource> make_synth(const SynthConfig& config);

}  // namespace tetrad
