// SPDX-License-Identifier: Apache-2.0
#include "tetrad/model/decoder.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "tetrad/core/error.h"
#include "tetrad/model/initialize.h"
#include "tetrad/model/weight_shards.h"

namespace tetrad {
namespace {

std::unique_ptr<Block> make_block(char letter, const BlockContext& context) {
  switch (letter) {
    case '*':
      return make_attention_block(context);
    case '-':
      return make_mlp_block(context);
    case 'M':
      return make_mamba2_block(context);
    default:
      fail("model.pattern: '{}' is no block", letter);
  }
}

/// Before anything is made from it.
ModelConfig validated(ModelConfig config) {
  validate(config);
  return config;
}

/// `turn` is different for each.
std::unique_ptr<Parameter> make_parameter(Backend& backend, const ParameterSpec& spec, std::int64_t turn,
                                          WeightShards* shards) {
  const auto& shape = spec.shape;
  const std::int64_t rows = shape.size() > 1 ? shape[0] : 1;
  const std::int64_t cols = std::accumulate(shape.begin() + (shape.size() > 1 ? 1 : 0), shape.end(),
                                            std::int64_t{1}, std::multiplies{});
  auto parameter = std::make_unique<Parameter>();
  parameter->name = spec.full_name();
  parameter->shape = shape;
  parameter->band = {0, rows};
  if (spec.may_be_shared()) {
    parameter->pieces = pieces_of_rows(rows, turn);
    parameter->is_linear = spec.is_linear;
    if (shards != nullptr) shards->share(*parameter);
  }
  parameter->value = backend.make_tensor(DType::f32, parameter->band.count, cols);
  parameter->gradient = Tensor(Buffer(), DType::f32, rows, cols);  // memory follows
  parameter->decay = spec.decays;
  parameter->initial = spec.initial;
  return parameter;
}

ResidualStream::Kept kept_residual(const MemoryLevers& levers) {
  if (levers.reads_only) return ResidualStream::Kept::nowhere;
  return levers.residual_on_host ? ResidualStream::Kept::on_host : ResidualStream::Kept::on_device;
}

}  // namespace

Decoder::Decoder(Backend& backend, ModelConfig config, std::int64_t batch, std::int64_t sequence,
                 DType storage, const MemoryLevers& levers, WeightShards* shards)
    : backend_(backend),
      config_(validated(std::move(config))),
      batch_(batch),
      sequence_(sequence),
      storage_(storage),
      scratch_(backend),
      residual_(backend, config_.blocks(), storage, batch * sequence, config_.hidden, kept_residual(levers)),
      reads_only_(levers.reads_only) {
  ParameterIndex by_name;
  for (const ParameterSpec& spec : model_parameters(config_)) {
    parameters_.push_back(make_parameter(backend_, spec, std::ssize(parameters_), shards));
    by_name.emplace(parameters_.back()->name, parameters_.back().get());
  }
  embedding_ = by_name.at("embedding.weight");
  make_gradients();
  final_norm_weight_ = by_name.at("norm.weight");
  if (!config_.tied) head_ = by_name.at("head.weight");
  std::uint32_t linear_count = 0;
  BlockContext context{backend_,  scratch_, config_,   by_name, 0,           batch_,
                       sequence_, storage_, Keep::all, levers,  linear_count};
  for (const char letter : config_.pattern) {
    context.keep = levers.recompute.of(context.index, letter);
    blocks_.push_back(make_block(letter, context));
    ++context.index;
  }
  final_norm_ =
      std::make_unique<NormLayer>(backend_, *final_norm_weight_, config_.norm_epsilon, context.tokens());
  if (!reads_only_) residual_gradient_ = backend_.make_tensor(storage_, context.tokens(), config_.hidden);
  tokens_ = backend_.make_tensor(DType::i32, 1, context.tokens());
  targets_ = backend_.make_tensor(DType::i32, 1, context.tokens());
  losses_ = backend_.make_tensor(DType::f32, 1, context.tokens());
}

std::vector<Linear*> Decoder::linears() {
  std::vector<Linear*> all;
  for (const auto& block : blocks_)
    for (Linear* linear : block->linears()) all.push_back(linear);
  return all;
}

void Decoder::make_gradients() {
  gradient_units_ = units_of_backward_pass(config_);
  if (reads_only_) return;
  const WeightShards* const shards = this->shards();
  if (shards == nullptr || !shards->share_gradients()) {
    for (const auto& parameter : parameters_)
      parameter->gradient =
          backend_.make_tensor(DType::f32, parameter->gradient.rows(), parameter->gradient.cols());
    return clear_gradients();
  }
  std::vector<std::int64_t> elements;
  for (const auto& parameter : parameters_) elements.push_back(parameter->gradient.size());
  const GradientTurns turns = gradient_turns(config_, gradient_units_, elements);
  for (const std::size_t bytes : turns.bytes)
    gradient_memory_.push_back(bytes > 0 ? backend_.allocate(bytes) : Buffer());
  for (std::size_t unit = 0; unit < gradient_units_.size(); ++unit) {
    std::span<std::byte> free = gradient_memory_[turns.memory_of[unit]].span<std::byte>();
    for (const std::size_t index : gradient_units_[unit]) {
      Parameter& parameter = *parameters_[index];
      const std::int64_t rows = parameter.gradient.rows();
      const std::int64_t cols = parameter.gradient.cols();
      const auto size = static_cast<std::size_t>(rows * cols) * sizeof(float);
      parameter.gradient = Tensor(Buffer::borrow(free.first(size)), DType::f32, rows, cols);
      parameter.gradient_sum = backend_.make_tensor(DType::f32, parameter.band.count, cols);
      free = free.subspan(gradient_bytes(elements[index]));
    }
  }
}

void Decoder::initialize(std::uint64_t seed) {
  for (const auto& parameter : parameters_) {
    const std::vector<float> values = initial_values(backend_.threads(), *parameter, config_, seed);
    backend_.upload(std::as_bytes(std::span(values)), parameter->value.bytes());
  }
  weights_changed();
}

void Decoder::weights_changed() {
  for (const auto& parameter : parameters_) ++parameter->version;
}

void Decoder::clear_gradients() {
  for (const auto& parameter : parameters_) backend_.set_to_zero(parameter->gradient.bytes());
}

MatrixView Decoder::head_weight() {
  const Parameter& head = head_parameter();
  if (head.shards != nullptr) {
    if (head_version_ != head.version) head.shards->gather_values(head, storage_, head_copy_);
    head_version_ = head.version;
    return head_copy_.const_view();
  }
  if (storage_ == DType::f32) return head.value.const_view();
  if (head_copy_.size() == 0) head_copy_ = backend_.make_tensor(storage_, config_.vocab, config_.hidden);
  if (head_version_ != head.version) backend_.cast({head.value.const_view(), head_copy_.view()});
  head_version_ = head.version;
  return head_copy_.const_view();
}

const float* Decoder::embedding_table() {
  if (embedding_->shards == nullptr) return embedding_->value.f32();
  if (table_version_ != embedding_->version)
    embedding_->shards->gather_values(*embedding_, DType::f32, table_);
  table_version_ = embedding_->version;
  return table_.f32();
}

void Decoder::check_count(std::size_t count) const {
  const auto tokens = static_cast<std::int64_t>(count);
  TETRAD_CHECK(tokens > 0 && tokens % sequence_ == 0 && tokens <= batch_ * sequence_,
               "{} tokens are not up to {} sequences of {}", tokens, batch_, sequence_);
}

void Decoder::upload(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                     std::span<const std::int32_t> document_starts) {
  check_tokens(tokens, config_.vocab);
  check_targets(targets, config_.vocab);
  backend_.upload(std::as_bytes(tokens), tokens_.bytes());
  backend_.upload(std::as_bytes(targets), targets_.bytes());
  has_documents_ = !document_starts.empty();
  if (!has_documents_) return;
  TETRAD_CHECK(document_starts.size() == tokens.size(), "{} tokens cannot have {} starts of documents",
               tokens.size(), document_starts.size());
  check_document_starts(document_starts, sequence_);
  if (document_starts_.size() == 0)
    document_starts_ = backend_.make_tensor(DType::i32, 1, batch_ * sequence_);
  backend_.upload(std::as_bytes(document_starts), document_starts_.bytes());
}

void Decoder::fetch_weights(const Pass& pass, std::size_t block, bool backward) {
  if (shards() == nullptr || !shards()->share_forms() || block >= blocks_.size()) return;
  for (Linear* linear : blocks_[block]->linears()) linear->fetch(pass, backward);
}

MatrixView Decoder::forward(Pass& pass, std::int64_t count) {
  pass.document_starts = has_documents_ ? document_starts_.i32() : nullptr;
  pass.stack.clear();
  MutableMatrixView x = residual_.begin(0, count);
  backend_.embedding(EmbeddingForward{tokens_.i32(), embedding_table(), config_.vocab, x});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const TraceRange range(pass.trace, "forward of block", static_cast<std::int64_t>(i));
    fetch_weights(pass, i + 1, false);
    if (pass.training) residual_.save(i);
    const MutableMatrixView y = residual_.begin(i + 1, count);
    blocks_[i]->forward(pass, as_const(x), y);
    x = y;
  }
  const MutableMatrixView hidden = scratch_.get(Scratch::mixed, storage_, count, config_.hidden);
  final_norm_->forward(as_const(x), hidden);
  return as_const(hidden);
}

void Decoder::train(Pass& pass, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                    float gradient_scale, std::span<float> losses,
                    std::span<const std::int32_t> document_starts) {
  check_count(tokens.size());
  TETRAD_CHECK(static_cast<std::int64_t>(tokens.size()) == batch_ * sequence_ &&
                   targets.size() == tokens.size() && losses.size() == tokens.size(),
               "training takes whole microbatches of {} sequences", batch_);
  upload(tokens, targets, document_starts);
  differentiate(pass, gradient_scale);
  backend_.download(losses_.bytes(), std::as_writable_bytes(losses));
}

void Decoder::differentiate(Pass& pass, float gradient_scale) {
  TETRAD_CHECK(!reads_only_, "a model that only reads has no memory for gradients");
  pass.training = true;
  const auto begin_unit = [&](std::size_t unit) {
    if (pass.gradients != nullptr) pass.gradients->begin_unit(unit);
  };
  const auto end_unit = [&](std::size_t unit) {
    if (pass.gradients != nullptr) pass.gradients->end_unit(unit);
  };
  const std::size_t last_unit = gradient_units_.size() - 1;
  const MatrixView hidden = forward(pass, batch_ * sequence_);

  begin_unit(0);
  if (config_.tied) begin_unit(last_unit);
  const MutableMatrixView gradient = residual_gradient_.view();
  const MutableMatrixView dhidden =
      scratch_.get(Scratch::gradient_narrow, storage_, batch_ * sequence_, config_.hidden);
  {
    const TraceRange range(pass.trace, "head and loss");
    backend_.cross_entropy(CrossEntropy{hidden, head_weight(), targets_.i32(), losses_.f32(), gradient_scale,
                                        dhidden, head_parameter().gradient.f32(), pass.z_loss});
  }
  backend_.set_to_zero(residual_gradient_.bytes());
  final_norm_->backward(residual_.restore(blocks_.size()), as_const(dhidden), gradient);
  residual_.release(blocks_.size());
  end_unit(0);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const TraceRange range(pass.trace, "backward of block", static_cast<std::int64_t>(i));
    const std::size_t unit = blocks_.size() - i;
    begin_unit(unit);
    fetch_weights(pass, i - 1, true);
    blocks_[i]->backward(pass, residual_.restore(i), gradient);
    residual_.release(i);
    end_unit(unit);
  }
  if (!config_.tied) begin_unit(last_unit);
  backend_.embedding(
      EmbeddingBackward{tokens_.i32(), as_const(gradient), config_.vocab, embedding_->gradient.f32()});
  end_unit(last_unit);
}

void Decoder::evaluate(Pass& pass, std::span<const std::int32_t> tokens,
                       std::span<const std::int32_t> targets, std::span<float> losses,
                       std::span<const std::int32_t> document_starts) {
  check_count(tokens.size());
  TETRAD_CHECK(targets.size() == tokens.size() && losses.size() == tokens.size(),
               "evaluation of {} tokens needs as many targets and losses, not {} and {}", tokens.size(),
               targets.size(), losses.size());
  upload(tokens, targets, document_starts);
  pass.training = false;
  CrossEntropy loss;
  loss.hidden = forward(pass, static_cast<std::int64_t>(tokens.size()));
  loss.head = head_weight();
  loss.targets = targets_.i32();
  loss.losses = losses_.f32();
  backend_.cross_entropy(loss);
  backend_.download(losses_.bytes().first(losses.size_bytes()), std::as_writable_bytes(losses));
}

std::size_t Decoder::activation_bytes() const {
  return scratch_.bytes() + residual_gradient_.bytes().size() + residual_.bytes() + saved_bytes();
}

std::size_t Decoder::saved_bytes() const {
  std::size_t total = 0;
  for (const auto& block : blocks_) total += block->saved_bytes();
  return total;
}

}  // namespace tetrad
