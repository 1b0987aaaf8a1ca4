// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/completion_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tetrad/io/json_text.h"
#include "tetrad/serve/logprobs.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

/// Without a last character that is not complete.
std::string_view whole_characters(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t size = 1; size <= std::min(kLongest, text.size()); ++size) {
    const auto byte = static_cast<unsigned char>(text[text.size() - size]);
    if (byte < 0x80) return text;
    if (byte < 0xC0) continue;  // not the first of its character
    const std::size_t wanted = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return size < wanted ? text.substr(0, text.size() - size) : text;
  }
  return text;
}

}  // namespace

std::size_t sendable(std::string_view text, std::size_t generated_from,
                     const std::vector<std::string>& stop) {
  const std::string_view generated = text.substr(generated_from);
  std::size_t held = 0;
  for (const std::string& wanted : stop)
    for (std::size_t size = std::min(wanted.size() - 1, generated.size()); size > held; --size)
      if (generated.ends_with(std::string_view(wanted).substr(0, size))) held = size;
  return whole_characters(text.substr(0, text.size() - held)).size();
}

struct CompletionStream::Choice {
  explicit Choice(const Tokenizer* tokenizer) : logprobs(tokenizer) {}
  Logprobs logprobs;
  std::string text;              //!< that was not sent yet
  std::size_t prompt_bytes = 0;  //!< leading bytes that are not generated text
  bool begun = false;
  bool has_role = false;  //!< of a chat: it was said whose message it is
};

CompletionStream::CompletionStream(const CompletionRequest& request, const CompletionContext& context,
                                   const Json& frame, const Write& write)
    : request_(request), context_(context), frame_(frame), write_(write) {
  const std::size_t count = request.prompts.size() * static_cast<std::size_t>(request.n);
  choices_.assign(count, Choice(context.tokenizer));
}

CompletionStream::~CompletionStream() = default;

void CompletionStream::begin(Choice& choice, std::size_t index, const Generation& news) {
  choice.begun = true;
  if (!request_.echo) return;
  const auto& prompt = request_.prompts[index / static_cast<std::size_t>(request_.n)];
  if (context_.tokenizer != nullptr) choice.text = context_.tokenizer->decode(prompt);
  choice.prompt_bytes = choice.text.size();
  for (std::size_t i = 0; request_.logprobs && i < prompt.size(); ++i)
    choice.logprobs.add(prompt[i], i == 0 ? nullptr : &news.prompt_scores[i - 1]);
}

/// What can be sent of the text with its newest tokens.
std::string CompletionStream::take_text(Choice& choice, const Generation& news, bool is_done) const {
  if (context_.tokenizer == nullptr) return {};
  choice.text += context_.tokenizer->decode(without_end(news.tokens, request_, context_));
  std::size_t size = choice.text.size();
  if (!is_done)
    size = sendable(choice.text, choice.prompt_bytes, request_.stop);
  else if (const auto at = find_stop(choice.text, request_.stop, choice.prompt_bytes))
    size = *at;
  std::string result = choice.text.substr(0, size);
  choice.text.erase(0, size);
  choice.prompt_bytes -= std::min(choice.prompt_bytes, size);
  return result;
}

/// What is new of a message; the first says whose it is.
Json CompletionStream::delta(Choice& choice, std::string text) {
  Json result = {{"content", std::move(text)}};
  if (!std::exchange(choice.has_role, true)) result["role"] = "assistant";
  return result;
}

void CompletionStream::add(std::size_t index, const Generation& news, bool is_done) {
  Choice& choice = choices_[index];
  if (!choice.begun) begin(choice, index, news);
  completion_tokens_ += news.tokens.size();
  for (std::size_t i = 0; request_.logprobs && i < news.tokens.size(); ++i)
    choice.logprobs.add(news.tokens[i], &news.scores[i]);
  std::string text = take_text(choice, news, is_done);
  if (text.empty() && !is_done && !request_.logprobs && !request_.return_token_ids) return;
  Json entry = {{"index", index},
                {"logprobs", request_.logprobs ? choice.logprobs.take() : Json()},
                {"finish_reason", nullptr}};
  if (request_.is_chat)
    entry["delta"] = delta(choice, std::move(text));
  else
    entry["text"] = std::move(text);
  if (is_done) entry["finish_reason"] = news.finish == Finish::stop ? "stop" : "length";
  if (request_.return_token_ids) entry["token_ids"] = news.tokens;
  Json event = frame_;
  event["choices"] = Json::array({std::move(entry)});
  if (request_.include_usage) event["usage"] = nullptr;
  send(std::move(event));
}

void CompletionStream::fail(const Json& error) { send(error); }

void CompletionStream::finish() {
  if (request_.include_usage) {
    Json event = frame_;
    event["choices"] = Json::array();
    event["usage"] = usage_json(request_, completion_tokens_);
    send(std::move(event));
  }
  write_("data: [DONE]\n\n");
}

void CompletionStream::send(Json event) {
  if (!has_sent_ && !request_.warnings.empty()) event["warnings"] = request_.warnings;
  has_sent_ = true;
  write_(fmt::format("data: {}\n\n", json_text(event)));
}

}  // namespace tetrad
