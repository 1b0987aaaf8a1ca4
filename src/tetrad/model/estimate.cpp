// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/estimate.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "tetrad/core/checked.h"
#include "tetrad/model/gradient_units.h"
#include "tetrad/model/residual_stream.h"
#include "tetrad/model/scratch.h"
#include "tetrad/model/weight_shards.h"
#include "tetrad/ops/adamw.h"
#include "tetrad/parallel/sharding.h"

namespace tetrad {
namespace {

double as_double(std::int64_t value) { return static_cast<double>(value); }

Form weight_form(const MemoryCase& c) { return c.levers.weights_as_codes ? Form::packed : Form::operand; }

/// What blocks keep, what they share and what operations hold, block by block as the blocks do it.
class ActivationMemory {
 public:
  ActivationMemory(const ModelConfig& config, const MemoryCase& c, const MemoryTraits& traits)
      : config_(config),
        case_(c),
        traits_(traits),
        tokens_(c.batch * c.sequence),
        element_(bits_of(c.storage) / 8.0),
        operations_(traits.operations()) {
    const double ids = 4 * (c.document_mask ? 4 : 3);  // tokens, targets, losses, starts of documents
    const std::int64_t stream =                        // and its gradient
        ResidualStream::buffers(config.blocks(), c.levers.residual_on_host) + 1;
    kept_ = as_double(tokens_) * (as_double(stream) * element_ * as_double(config.hidden) + ids +
                                  kF32 * as_double(config.blocks() + 1));  // inverse RMS
    share(Scratch::mixed, config.hidden);
    share(Scratch::gradient_narrow, config.hidden);
    operations_->embedding(tokens_, config.hidden);
    operations_->cross_entropy(tokens_, config.vocab, c.storage);
    if (c.host_moments > 0) operations_->moments_on_host();
  }

  /// Returns what the block keeps.
  double add_block(char letter, Keep keep, const std::vector<LinearShape>& linears,
                   const std::array<const LinearPrecision*, 2>& precisions) {
    const double before = kept_;
    add_linear(linears[0], *precisions[0], Place::first, keep, true);
    // The attention's output is kept, or not, by the attention itself.
    add_linear(linears[1], *precisions[1], Place::second, keep, letter != '*');
    if (letter != '-') share(Scratch::gradient_wide, linears[0].out);  // feed-forward blocks need none
    share(Scratch::gradient_middle, linears[1].in);
    save(Scratch::wide, linears[0].out, keep != Keep::nothing);
    if (letter == '*') add_attention(keep);
    if (letter == 'M') add_mamba2(keep);
    return kept_ - before;
  }
  /// One more block like one that was added, which keeps so much.
  void repeat_block(double kept) { kept_ += kept; }

  double activations() const {
    const auto sum = [](const auto& all) { return std::accumulate(all.begin(), all.end(), 0.0); };
    return kept_ + sum(shared_) + sum(operands_) + requantized_ + sum(mean_rows_) + sum(means_) +
           sum(packed_inputs_);
  }
  double scratch() const { return operations_->bytes(); }

 private:
  static constexpr double kF32 = 4;

  void share_bytes(Scratch::Slot slot, double bytes) { shared_[slot] = std::max(shared_[slot], bytes); }
  void share(Scratch::Slot slot, std::int64_t width) {
    share_bytes(slot, element_ * as_double(tokens_) * as_double(width));
  }
  void save_bytes(Scratch::Slot slot, double bytes, bool kept) {
    if (kept)
      kept_ += bytes;
    else
      share_bytes(slot, bytes);
  }
  void save(Scratch::Slot slot, std::int64_t width, bool kept) {
    save_bytes(slot, element_ * as_double(tokens_) * as_double(width), kept);
  }

  void add_attention(Keep keep) {
    save(Scratch::second_input, config_.heads * config_.head_dim, keep != Keep::nothing);
    save_bytes(Scratch::sums, kF32 * as_double(tokens_ * config_.heads), keep != Keep::nothing);
    if (config_.qk_norm) {
      const std::int64_t normed = config_.heads + config_.kv_heads;
      save(Scratch::heads, normed * config_.head_dim, keep == Keep::all);
      kept_ += kF32 * as_double(tokens_ * normed);  // inverse RMS
    }
    operations_->attention(
        {case_.batch, case_.sequence, config_.heads, config_.kv_heads, config_.head_dim, 1}, case_.storage,
        case_.levers.attention_by_parts);
  }

  void add_mamba2(Keep keep) {
    const Mamba2Config& m = config_.mamba;
    const Mamba2Shape shape{case_.batch, case_.sequence, m.heads, m.head_dim, m.groups, m.state, m.chunk};
    share(Scratch::gradient_middle, m.conv_channels());
    share(Scratch::gradient_middle_2, m.inner());
    save(Scratch::convolved, m.conv_channels(), keep == Keep::all);
    save(Scratch::scanned, m.inner(), keep != Keep::nothing);
    save_bytes(Scratch::states,
               kF32 * as_double(shape.batch * shape.chunks()) * as_double(shape.inner() * shape.state),
               keep != Keep::nothing);
    kept_ += kF32 * as_double(tokens_ * m.groups);  // inverse RMS of the gated norm
    operations_->mamba2(shape, m.conv, case_.storage);
  }

  double quantized(const std::optional<QuantSpec>& spec, Form form, std::int64_t rows, std::int64_t cols) {
    if (!spec) return 0;
    operations_->quantize(*spec, rows * cols, case_.telemetry);
    return as_double(quantized_bytes(traits_, *spec, form, rows, cols));
  }

  /// `writes_input`: x is written where the layer says.
  void add_linear(const LinearShape& linear, const LinearPrecision& precision, Place place, Keep keep,
                  bool writes_input) {
    const auto spec = [&](Operand operand) -> const std::optional<QuantSpec>& { return precision[operand]; };
    const auto raise = [](double& bytes, double needed) { bytes = std::max(bytes, needed); };
    const double codes = quantized(precision.saved_spec(), Form::packed, linear.in, tokens_);
    if (keep == Keep::nothing)
      raise(packed_inputs_[static_cast<std::size_t>(place)], codes);
    else
      kept_ += codes;
    if (writes_input)
      save(place == Place::first ? Scratch::first_input : Scratch::second_input, linear.in,
           keep == Keep::all && !precision.saved_spec());
    raise(operands_[0], quantized(spec(Operand::fprop_x), Form::operand, tokens_, linear.in));
    raise(operands_[0], quantized(spec(Operand::dgrad_dy), Form::operand, tokens_, linear.out));
    raise(operands_[1], quantized(spec(Operand::wgrad_dy), Form::operand, linear.out, tokens_));
    if (precision.dgrad_requantizes()) raise(requantized_, element_ * as_double(linear.out * linear.in));
    if (precision.wgrad_requantizes()) {
      raise(requantized_, element_ * as_double(tokens_) * as_double(linear.in));
      raise(operands_[0], quantized(spec(Operand::wgrad_x), Form::operand, linear.in, tokens_));
    }

    if (precision.centres()) {
      const double mean = kF32 * as_double(linear.in);
      if (keep == Keep::nothing)
        raise(means_[static_cast<std::size_t>(place)], mean);
      else
        kept_ += mean;
      raise(requantized_, element_ * as_double(tokens_) * as_double(linear.in));
      raise(mean_rows_[0], kF32 * as_double(std::max(linear.in, linear.out)));
      raise(mean_rows_[1], kF32 * as_double(linear.out));
      operations_->column_sums(tokens_, std::max(linear.in, linear.out));
    }

    const auto operand = [&](Operand which, std::int64_t rows, std::int64_t depth,
                             Form form = Form::operand) {
      return OperandShape{rows, depth, case_.storage, spec(which), form, false};
    };
    const Form weights = weight_form(case_);
    OperandShape weight = operand(Operand::fprop_w, linear.in, linear.out, weights);
    weight.transposed = true;
    if (!precision.weight_codes_shared() && !precision.dgrad_reads_fprop())
      weight = operand(Operand::dgrad_w, linear.in, linear.out, weights);
    OperandShape input = operand(precision.saved_operand(), linear.in, tokens_, Form::packed);
    input.transposed = precision.wgrad_reads_fprop();
    if (precision.wgrad_requantizes()) input = operand(Operand::wgrad_x, linear.in, tokens_);
    const bool is_kept = precision.saved_operand() == Operand::fprop_x;
    operations_->product(
        operand(Operand::fprop_x, tokens_, linear.in, is_kept ? Form::packed : Form::operand),
        operand(Operand::fprop_w, linear.out, linear.in, weights), case_.storage);
    operations_->product(operand(Operand::dgrad_dy, tokens_, linear.out), weight, case_.storage);
    operations_->product(operand(Operand::wgrad_dy, linear.out, tokens_), input, DType::f32);
  }

  const ModelConfig& config_;
  const MemoryCase& case_;
  const MemoryTraits& traits_;
  std::int64_t tokens_;
  double element_;  //!< bytes
  double kept_ = 0;
  std::array<double, Scratch::slots> shared_ = {};
  std::array<double, 2> operands_ = {};
  double requantized_ = 0;  //!< values on the way from one quantizer to the next, or centred
  std::array<double, 2> mean_rows_ = {};
  std::array<double, 2> means_ = {};
  std::array<double, 2> packed_inputs_ = {};
  std::unique_ptr<OperationMemory> operations_;
};

/// Bytes of a form of a weight that products read: fprop_w, or dgrad_w.
double weight_form_bytes(const LinearShape& linear, const LinearPrecision& precision, Operand operand,
                         const MemoryCase& c, const MemoryTraits& traits) {
  const bool transposes = operand == Operand::dgrad_w;
  if (transposes && precision.weight_form_shared()) return 0;
  const std::int64_t rows = transposes ? linear.in : linear.out;
  const std::int64_t cols = transposes ? linear.out : linear.in;
  if (precision[operand])
    return as_double(quantized_bytes(traits, *precision[operand], weight_form(c), rows, cols));
  // Alone a rank reads f32 from the masters; what others have must be brought together.
  if (c.storage == DType::f32 && c.shards() == 1) return 0;
  return bits_of(c.storage) / 8.0 * as_double(rows) * as_double(cols);
}

constexpr std::array kWeightForms = {Operand::fprop_w, Operand::dgrad_w};

/// Of each parameter.
std::vector<std::int64_t> moment_sizes(const std::vector<ParameterSize>& parameters, DType moments) {
  std::vector<std::int64_t> sizes;
  for (const ParameterSize& parameter : parameters)
    sizes.push_back(moment_bytes(parameter.elements, moment_type(moments, parameter.is_linear)));
  return sizes;
}

/// The part of a matrix that the one of so many ranks has that has most.
double largest_share(int shards) { return as_double(ceil_div(std::int64_t{kPieces}, shards)) / kPieces; }

/// What that one has.
std::vector<ParameterSize> own_part(std::vector<ParameterSize> parameters, int shards) {
  for (ParameterSize& parameter : parameters)
    if (parameter.may_be_shared)
      parameter.elements = parameter.elements * ceil_div(std::int64_t{kPieces}, shards) / kPieces;
  return parameters;
}

}  // namespace

std::vector<ParameterSize> parameter_sizes(const ModelConfig& config) {
  std::vector<ParameterSize> sizes;
  for (const ParameterSpec& parameter : model_parameters(config))
    sizes.push_back(
        {std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::int64_t{1}, std::multiplies()),
         parameter.is_linear, parameter.may_be_shared()});
  return sizes;
}

std::int64_t moment_bytes(const std::vector<ParameterSize>& parameters, DType moments) {
  const std::vector<std::int64_t> sizes = moment_sizes(parameters, moments);
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

MemoryEstimator::MemoryEstimator(const ModelConfig& config, const Recipe& recipe, const MemoryTraits& traits)
    : config_(config), traits_(traits), parameters_(parameter_sizes(config)) {
  phases_.push_back(make_phase(recipe, 0));
  for (const PrecisionSwitch& change : recipe.config().schedule)
    phases_.push_back(make_phase(recipe, change.at));
}

MemoryEstimator::Phase MemoryEstimator::make_phase(const Recipe& recipe, double progress) const {
  Phase phase;
  std::map<char, std::vector<LinearShape>> shapes;
  for (const char letter : kBlockLetters)
    if (config_.pattern.find(letter) != std::string::npos) shapes[letter] = linear_shapes(config_, letter);
  for (std::int64_t block = 0; block < config_.blocks(); ++block) {
    BlockKind kind{config_.pattern[static_cast<std::size_t>(block)], {}, {}};
    std::size_t place = 0;
    for (const LinearShape& linear : shapes.at(kind.letter)) {
      const std::string name = "blocks." + std::to_string(block) + "." + linear.name;
      // What the recipe has resolved to the same is one object.
      kind.precisions[place++] = &recipe.at({name, block, linear.out}, progress);
    }
    auto found = std::ranges::find_if(phase.kinds, [&](const BlockKind& known) {
      return known.letter == kind.letter && known.precisions == kind.precisions;
    });
    if (found == phase.kinds.end()) {
      kind.linears = shapes.at(kind.letter);
      found = phase.kinds.insert(found, std::move(kind));
    }
    ++found->count;
    phase.kind_of_block.push_back(static_cast<std::size_t>(found - phase.kinds.begin()));
  }
  return phase;
}

double MemoryEstimator::gradients(const std::vector<ParameterSize>& own, const MemoryCase& c) const {
  const auto bytes_of = [](const std::vector<ParameterSize>& parameters) {
    double bytes = 0;
    for (const ParameterSize& parameter : parameters) bytes += 4 * as_double(parameter.elements);
    return bytes;
  };
  double whole = bytes_of(parameters_);
  double added_up = whole / c.ranks;  // by this rank
  if (c.shards() > 1) {
    added_up = 0;
    for (const ParameterSize& parameter : own)
      added_up += 4 * as_double(parameter.elements) / (parameter.may_be_shared ? 1 : c.ranks);
  }
  const double waiting = c.waiting_gradients * (c.groups_travel_alone ? added_up : whole);
  if (!c.shares(kSharesGradients)) return whole + waiting;
  std::vector<std::int64_t> elements;
  for (const ParameterSize& parameter : parameters_) elements.push_back(parameter.elements);
  whole = 0;
  for (const std::size_t bytes : gradient_turns(config_, units_of_backward_pass(config_), elements).bytes)
    whole += static_cast<double>(bytes);
  return whole + bytes_of(own) + waiting;
}

double MemoryEstimator::all_forms(const Phase& phase, const MemoryCase& c) const {
  double bytes = 0;
  for (const BlockKind& kind : phase.kinds)
    for (std::size_t i = 0; i < kind.linears.size(); ++i)
      for (const Operand operand : kWeightForms)
        bytes += as_double(kind.count) *
                 weight_form_bytes(kind.linears[i], *kind.precisions[i], operand, c, traits_);
  return bytes;
}

/// Memory for the largest that take turns in it, and what is kept of codes: those of the own bands.
double MemoryEstimator::passing_forms(const Phase& phase, const MemoryCase& c) const {
  std::map<std::tuple<std::size_t, std::size_t, Operand>, double> largest;  // by turn and place
  double kept = 0;
  for (std::size_t block = 0; block < phase.kind_of_block.size(); ++block) {
    const BlockKind& kind = phase.kinds[phase.kind_of_block[block]];
    for (std::size_t place = 0; place < kind.linears.size(); ++place)
      for (const Operand operand : kWeightForms) {
        const LinearPrecision& precision = *kind.precisions[place];
        const double bytes = weight_form_bytes(kind.linears[place], precision, operand, c, traits_);
        double& most = largest[{block % kFormTurns, place, operand}];
        most = std::max(most, bytes);
        const bool is_requantized = operand == Operand::dgrad_w && precision.dgrad_requantizes();
        if (precision[operand] && bands_have_codes_of_whole(*precision[operand]) && !is_requantized)
          kept += bytes * largest_share(c.shards());
      }
  }
  for (const auto& [turn, bytes] : largest) kept += bytes;
  return kept;
}

/// The largest matrix that travels in f32, because something is made of it that bands do not say.
double MemoryEstimator::gathered_masters(const Phase& phase, const MemoryCase& c) const {
  double largest = 0;
  for (const BlockKind& kind : phase.kinds)
    for (std::size_t i = 0; i < kind.linears.size(); ++i) {
      const LinearPrecision& precision = *kind.precisions[i];
      const bool travels = std::ranges::any_of(kWeightForms, [&](Operand operand) {
        return precision[operand] && (c.telemetry || !bands_have_codes_of_whole(*precision[operand]));
      });
      if (travels || precision.centres())
        largest = std::max(largest, 4 * as_double(kind.linears[i].out) * as_double(kind.linears[i].in));
    }
  return largest;
}

MemoryEstimate MemoryEstimator::estimate_in(const Phase& phase, const MemoryCase& c) const {
  MemoryEstimate estimate;
  const std::vector<ParameterSize> own = own_part(parameters_, c.shards());
  for (const ParameterSize& parameter : own) estimate.weights += 4 * as_double(parameter.elements);
  estimate.gradients = gradients(own, c);
  estimate.exchange = as_double(c.exchange);
  estimate.moments_on_host = as_double(host_moments(c.moments, c.host_moments, c.shards()));
  estimate.optimizer = as_double(moment_bytes(own, c.moments)) - estimate.moments_on_host;
  if (c.storage != DType::f32)
    estimate.operands = bits_of(c.storage) / 8.0 * as_double(config_.vocab) * as_double(config_.hidden);
  if (c.shards() > 1)  // the embedding as everybody reads it
    estimate.operands += 4 * as_double(config_.vocab) * as_double(config_.hidden);
  estimate.operands += c.shares(kSharesForms) ? passing_forms(phase, c) : all_forms(phase, c);
  if (c.shards() > 1) estimate.operands += gathered_masters(phase, c);
  const std::int64_t moved =
      config_.blocks() + 1 - ResidualStream::buffers(config_.blocks(), c.levers.residual_on_host);
  estimate.residual_on_host =
      bits_of(c.storage) / 8.0 * as_double(moved * c.batch * c.sequence) * as_double(config_.hidden);
  ActivationMemory memory(config_, c, traits_);
  std::map<std::pair<std::size_t, Keep>, double> kept;  // by a block of this kind that keeps so much
  for (std::size_t block = 0; block < phase.kind_of_block.size(); ++block) {
    const BlockKind& kind = phase.kinds[phase.kind_of_block[block]];
    const Keep keep = c.levers.recompute.of(static_cast<std::int64_t>(block), kind.letter);
    const auto [known, is_new] = kept.try_emplace({phase.kind_of_block[block], keep});
    if (is_new)
      known->second = memory.add_block(kind.letter, keep, kind.linears, kind.precisions);
    else
      memory.repeat_block(known->second);
    estimate.kept_by_block.push_back(known->second);
  }
  estimate.activations = memory.activations();
  estimate.scratch = memory.scratch();
  return estimate;
}

MemoryEstimate MemoryEstimator::estimate(const MemoryCase& c) const {
  MemoryEstimate most = estimate_in(phases_.front(), c);
  for (std::size_t phase = 1; phase < phases_.size(); ++phase) {
    MemoryEstimate then = estimate_in(phases_[phase], c);
    if (then.total() > most.total()) most = std::move(then);
  }
  return most;
}

std::int64_t MemoryEstimator::host_moments(DType moments, std::int64_t bytes, int shards) const {
  const std::vector<std::int64_t> sizes = moment_sizes(own_part(parameters_, shards), moments);
  const std::vector<bool> on_host = moments_on_host(sizes, bytes);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (on_host[i]) sum += sizes[i];
  return sum;
}

MemoryEstimate estimate_memory(const ModelConfig& config, const Recipe& recipe, const MemoryCase& c,
                               const MemoryTraits& traits) {
  return MemoryEstimator(config, recipe, traits).estimate(c);
}

}  // namespace tetrad
