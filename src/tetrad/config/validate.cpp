// SPDX-License-Identifier: Apache-2.0
// What must fit together in a configuration. Ranges of single values stand in schema.h.

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "tetrad/config/bind.h"
#include "tetrad/config/config.h"
#include "tetrad/config/parse.h"
#include "tetrad/core/checked.h"
#include "tetrad/core/error.h"
#include "tetrad/numerics/hadamard.h"

namespace tetrad {
namespace {

constexpr std::int64_t kDefaultRhtSize = 16;

/// Elements of the reduction dimension of Wgrad: the tokens of a microbatch.
std::int64_t checked_tokens(const TrainConfig& train) {
  constexpr std::int64_t kMaxTokensPerStep = std::int64_t{1} << 31;
  const std::array extents = {std::uint64_t(train.batch), std::uint64_t(train.sequence)};
  const auto tokens = checked_product(extents);
  TETRAD_CHECK(tokens && *tokens <= std::uint64_t(kMaxTokensPerStep),
               "train.batch ({}) times train.sequence ({}) is more than the 2^31 tokens that a step may have",
               train.batch, train.sequence);
  return static_cast<std::int64_t>(*tokens);
}

void validate_length(const TrainConfig& train, std::int64_t tokens_per_step) {
  TETRAD_CHECK(train.steps == 0 || train.tokens == 0,
               "train.steps ({}) and train.tokens ({}) are both given: set one of them to 0", train.steps,
               train.tokens);
  TETRAD_CHECK(train.steps > 0 || train.tokens > 0,
               "the length of the run is missing: set train.steps or train.tokens");
  TETRAD_CHECK(train.tokens == 0 || train.tokens >= train.batch * train.sequence,
               "train.tokens ({}) is less than one step of train.batch * train.sequence = {} tokens: train "
               "longer, or use a smaller batch",
               train.tokens, train.batch * train.sequence);
  TETRAD_CHECK(checked_mul(std::uint64_t(train.steps), std::uint64_t(tokens_per_step)).value_or(~0ULL) <=
                   std::uint64_t(std::numeric_limits<std::int64_t>::max()),
               "train.steps ({}) times {} tokens per step is more than can be counted: train fewer steps",
               train.steps, tokens_per_step);
}

void validate_train(const TrainConfig& train) {
  TETRAD_CHECK(train.batch > 0, "train.batch is missing: say how many sequences a step has");
  TETRAD_CHECK(train.sequence > 0, "train.sequence is missing: say how many tokens a sequence has");
  const std::int64_t tokens = checked_tokens(train);
  const std::int64_t microbatch = train.microbatch == 0 ? train.batch : train.microbatch;
  TETRAD_CHECK(train.batch % microbatch == 0,
               "train.batch ({}) is not a multiple of train.microbatch ({}): choose a divisor, or 0 for the "
               "whole batch",
               train.batch, microbatch);
  TETRAD_CHECK(
      train.microbatches() % train.groups == 0,
      "a step has {} microbatches (train.batch / train.microbatch), which cannot be cut into {} equal "
      "groups: change train.groups or train.microbatch",
      train.microbatches(), train.groups);
  TETRAD_CHECK(
      microbatch * train.sequence % 16 == 0,
      "a microbatch has {} * {} tokens, which is not a multiple of 16 as the blocks of 4-bit formats "
      "need: change train.microbatch or train.sequence",
      microbatch, train.sequence);
  validate_length(train, tokens);
  TETRAD_CHECK(
      train.checkpoint.enabled || (train.health.policy != "rollback" && train.health.on_spike != "rollback"),
      "train.health asks for rollbacks, but train.checkpoint.enabled is false: there is nothing to "
      "go back to");
}

void validate_transform(std::string_view key, std::int64_t size) {
  TETRAD_CHECK(is_hadamard_size(static_cast<int>(size)), "{} is {}: use a power of two from 2 to 128", key,
               size);
}

std::int64_t transform_size(const PrecisionConfig& precision) {
  return precision.rht.size.value_or(precision.scale.backward == "eden" ? kMaxHadamard : kDefaultRhtSize);
}

/// Wgrad transforms along the tokens of a microbatch.
void validate_tokens(std::string_view key, std::int64_t size, const TrainConfig& train) {
  const std::int64_t microbatch = train.microbatch == 0 ? train.batch : train.microbatch;
  TETRAD_CHECK(microbatch * train.sequence % size == 0,
               "{} is {}, but a microbatch has {} * {} tokens, which is not a multiple of it: change "
               "train.microbatch or train.sequence, or use a smaller transform",
               key, size, microbatch, train.sequence);
}

void validate_tokens(const PrecisionConfig& precision, const TrainConfig& train) {
  validate_tokens("precision.rht.size", transform_size(precision), train);
  for (const auto& [name, operand] : precision.operands)
    if (operand.hadamard.value_or(0) != 0 && name.starts_with("wgrad"))
      validate_tokens(fmt::format("precision.operands.{}.hadamard", name), *operand.hadamard, train);
}

void validate_phase(const DataPhase& phase, std::size_t index, const DataConfig& data) {
  TETRAD_CHECK(!phase.mix.empty(), "data.phases[{}].mix is empty: give weights to sources", index);
  double sum = 0;
  for (const auto& [name, weight] : phase.mix) {
    TETRAD_CHECK(data.sources.contains(name),
                 "data.phases[{}].mix names {}, which is not in data.sources: add it there, or correct the "
                 "name",
                 index, config::shown(name));
    sum += weight;
  }
  TETRAD_CHECK(std::isfinite(sum) && sum > 0,
               "data.phases[{}].mix: the weights sum to {}: at least one must be above 0", index, sum);
}

void validate_data(const DataConfig& data) {
  TETRAD_CHECK(!data.sources.empty(),
               "data.sources is empty: name at least one token file, such as data.sources.code=data/code");
  for (const auto& [name, source] : data.sources)
    TETRAD_CHECK(!source.path.empty(), "data.sources.{}.path is missing: name its token file", name);
  double previous = 0;
  for (std::size_t i = 0; i < data.phases.size(); ++i) {
    const DataPhase& phase = data.phases[i];
    TETRAD_CHECK(phase.until > previous,
                 "data.phases[{}].until is {}, which is not above {}, where the phase begins: fractions of "
                 "the token budget must increase",
                 i, phase.until, previous);
    validate_phase(phase, i, data);
    previous = phase.until;
  }
  TETRAD_CHECK(data.phases.empty() || previous == 1,
               "data.phases end at {} of the token budget: the last one must have until: 1", previous);
}

void validate_schedule(const ScheduleConfig& schedule) {
  const double decay = schedule.kind == "wsd" ? schedule.decay : 0;
  TETRAD_CHECK(schedule.warmup + decay <= 1,
               "schedule.warmup ({}) and schedule.decay ({}) are more than the whole run: their sum may be 1",
               schedule.warmup, decay);
}

}  // namespace

void validate(const PrecisionConfig& precision) {
  validate_transform("precision.rht.size", transform_size(precision));
  for (const auto& [name, operand] : precision.operands)
    if (operand.hadamard.value_or(0) != 0)
      validate_transform(fmt::format("precision.operands.{}.hadamard", name), *operand.hadamard);
  for (const std::string& pattern : precision.high_precision.match)
    TETRAD_CHECK(!pattern.empty(), "precision.high_precision.match holds an empty name: leave it out");
  for (const std::string& pattern : precision.high_precision.fp8)
    TETRAD_CHECK(!pattern.empty(), "precision.high_precision.fp8 holds an empty name: leave it out");
  double previous = -1;
  for (std::size_t i = 0; i < precision.schedule.size(); ++i) {
    const PrecisionSwitch& change = precision.schedule[i];
    TETRAD_CHECK(change.at > previous,
                 "precision.schedule[{}].at is {}, but the one before is {}: order the switches by time", i,
                 change.at, previous);
    TETRAD_CHECK(change.forward || change.backward,
                 "precision.schedule[{}] changes nothing: set forward, backward or both to a recipe", i);
    previous = change.at;
  }
}

void validate(const Config& config) {
  // Reading back what would be written checks every single value against the schema.
  config::read_node(config::write_node(config), nullptr);
  validate(config.model);
  validate_train(config.train);
  validate(config.precision);
  validate_tokens(config.precision, config.train);
  validate_data(config.data);
  validate_schedule(config.schedule);
}

}  // namespace tetrad
