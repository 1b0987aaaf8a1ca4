// SPDX-License-Identifier: Apache-2.0
// Sequences that grow: what evaluates and generates without a backward pass.

#include <algorithm>

#include "tetrad/core/error.h"
#include "tetrad/model/decoder.h"

namespace tetrad {

Session Decoder::start(std::int64_t capacity) const {
  Session session;
  for (const auto& block : blocks_) session.states_.push_back(block->make_state(capacity));
  return session;
}

std::int64_t Decoder::session_bytes(std::int64_t capacity) const {
  std::int64_t total = 0;
  for (const auto& block : blocks_) total += block->state_bytes(capacity);
  return total;
}

std::vector<float> Decoder::extend(Pass& pass, Session& session, std::span<const std::int32_t> tokens,
                                   bool last_only) {
  std::vector<float> result;
  extend(pass, session, tokens, last_only, [&](std::int64_t /*first*/, std::span<const float> logits) {
    if (last_only) result.clear();
    result.insert(result.end(), logits.begin(), logits.end());
  });
  return result;
}

void Decoder::extend(Pass& pass, Session& session, std::span<const std::int32_t> tokens, bool last_only,
                     const LogitsSink& sink) {
  TETRAD_CHECK(!tokens.empty(), "there are no tokens to read");
  std::int64_t before = 0;  // rows of earlier parts
  while (!tokens.empty()) {
    const auto room = static_cast<std::size_t>(kPromptPart - session.length() % kPromptPart);
    const NewTokens part{&session, tokens.first(std::min(room, tokens.size())), last_only};
    extend(pass, std::span(&part, 1),
           [&](std::int64_t first, std::span<const float> logits) { sink(before + first, logits); });
    before += last_only ? 1 : std::ssize(part.tokens);
    tokens = tokens.subspan(part.tokens.size());
  }
}

void Decoder::extend(Pass& pass, std::span<const NewTokens> sequences, const LogitsSink& sink) {
  std::vector<std::int32_t> tokens;
  std::vector<SequencePart> parts;
  std::int64_t wanted = 0;
  TETRAD_CHECK(!sequences.empty(), "there are no sequences to read");
  for (const NewTokens& sequence : sequences) {
    TETRAD_CHECK(!sequence.tokens.empty(), "there are no tokens to read");
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    parts.push_back({static_cast<std::int64_t>(sequence.tokens.size()), nullptr});
    wanted += sequence.last_only ? 1 : parts.back().tokens;
  }
  const auto count = static_cast<std::int64_t>(tokens.size());
  pass.training = false;
  pass.stack.clear();
  if (parts.size() > 1)
    for (const SequencePart& part : parts) pass.stack.push_back(part.tokens);
  Tensor x = backend_.make_tensor(storage_, count, config_.hidden);
  Tensor y = backend_.make_tensor(storage_, count, config_.hidden);
  check_tokens(tokens, config_.vocab);
  Tensor ids = backend_.make_tensor(DType::i32, 1, count);
  backend_.upload(std::as_bytes(std::span(tokens)), ids.bytes());
  backend_.embedding(EmbeddingForward{ids.i32(), embedding_table(), config_.vocab, x.view()});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    for (std::size_t p = 0; p < parts.size(); ++p) parts[p].state = sequences[p].session->states_[i].get();
    blocks_[i]->extend(pass, x.const_view(), y.view(), parts);
    std::swap(x, y);
  }

  // What is wanted lies together, so that the head is one product.
  std::int64_t first = 0;
  std::int64_t gathered = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    sequences[p].session->length_ += parts[p].tokens;
    const std::int64_t rows_wanted = sequences[p].last_only ? 1 : parts[p].tokens;
    first += parts[p].tokens;
    if (wanted < count)
      backend_.cast(
          {rows(x.const_view(), first - rows_wanted, rows_wanted), rows(y.view(), gathered, rows_wanted)});
    gathered += rows_wanted;
  }
  if (wanted < count) std::swap(x, y);
  final_norm_->forward(rows(x.const_view(), 0, wanted), rows(y.view(), 0, wanted));
  hand_over_logits(rows(y.const_view(), 0, wanted), sink);
}

void Decoder::hand_over_logits(const MatrixView& hidden, const LogitsSink& sink) {
  constexpr std::int64_t kLogits = std::int64_t{1} << 24;  // 64 MiB
  const std::int64_t part = std::clamp<std::int64_t>(kLogits / config_.vocab, 1, hidden.rows);
  const GemmOperand head = packed_head();
  Tensor logits = backend_.make_tensor(DType::f32, part, config_.vocab);
  Buffer copy;
  for (std::int64_t first = 0; first < hidden.rows; first += part) {
    const std::int64_t count = std::min(part, hidden.rows - first);
    backend_.gemm(rows(hidden, first, count), head, rows(logits.view(), 0, count));
    const auto size = static_cast<std::size_t>(count * config_.vocab);
    const std::span<const std::byte> bytes =
        backend_.readable(logits.bytes().first(size * sizeof(float)), copy);
    sink(first, {reinterpret_cast<const float*>(bytes.data()), size});
  }
}

bool Decoder::sequences_are_independent(const Pass& pass) {
  return std::ranges::all_of(linears(), [&](const Linear* linear) {
    const LinearPrecision& precision = linear->precision(pass);
    return precision.rows_are_independent() || (backend_.has_stacks() && precision.can_stack());
  });
}

GemmOperand Decoder::packed_head() {
  const GemmOperand head = head_weight();
  if (!reads_only_) return head;
  const std::uint64_t version = head_parameter().version;
  if (packed_head_version_ != version && !backend_.pack(head, packed_head_)) return head;
  packed_head_version_ = version;
  return head.with(packed_head_);
}

}  // namespace tetrad
