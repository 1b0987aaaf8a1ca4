// SPDX-License-Identifier: Apache-2.0
// Requests of /v1/completions and /v1/chat/completions.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tetrad/io/strict_json.h"
#include "tetrad/serve/chat_template.h"
#include "tetrad/serve/completions.h"
#include "tetrad/serve/request_members.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxLogprobs = 5;
constexpr std::int64_t kMaxN = 128;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;

std::vector<std::int32_t> encode_prompt(const std::string& text, const CompletionContext& context,
                                        const char* parameter = "prompt") {
  if (context.tokenizer == nullptr)
    refuse_parameter(parameter, "the model has no tokenizer: give the prompt as token ids");
  std::vector<std::int32_t> ids = context.tokenizer->encode(text);
  if (ids.empty()) {
    const std::optional<std::int32_t> end = context.tokenizer->end_of_document();
    if (!end) refuse_parameter(parameter, "the prompt is empty");
    ids.push_back(*end);  // a document begins
  }
  for (const std::int32_t id : ids)
    if (id >= context.vocab)
      refuse_parameter(parameter,
                       fmt::format("the text has the token {}, which the model does not know", id));
  return ids;
}

/// A string, a list of strings, a list of ids or a list of lists of ids.
std::vector<std::vector<std::int32_t>> parse_prompts(const Json* value, const CompletionContext& context) {
  if (value == nullptr) refuse_parameter("prompt", "there is no prompt");
  if (value->is_string()) return {encode_prompt(value->get_ref<const std::string&>(), context)};
  if (!value->is_array() || value->empty())
    refuse_parameter(
        "prompt", "prompt must be a string, a list of strings, a list of token ids or a list of such lists");
  if (value->front().is_number()) return {parse_token_ids(*value, "prompt", context.vocab)};
  if (static_cast<std::int64_t>(value->size()) > context.max_sequences)
    refuse_parameter("prompt", fmt::format("{} prompts are more than the {} of one request", value->size(),
                                           context.max_sequences));
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Json& entry : *value) {
    if (entry.is_string() != value->front().is_string())
      refuse_parameter("prompt", "prompt mixes texts and token ids");
    prompts.push_back(entry.is_string() ? encode_prompt(entry.get_ref<const std::string&>(), context)
                                        : parse_token_ids(entry, "prompt", context.vocab));
  }
  return prompts;
}

std::vector<std::string> parse_stop(const Json* value, const CompletionContext& context) {
  std::vector<std::string> result;
  if (value == nullptr) return result;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kMaxStops)
    refuse_parameter("stop", fmt::format("stop has more than {} strings", kMaxStops));
  for (const Json& entry : list) {
    if (!entry.is_string()) refuse_parameter("stop", "stop must be a string or a list of strings");
    result.push_back(entry.get<std::string>());
    if (result.back().empty() || result.back().size() > kMaxStopBytes)
      refuse_parameter("stop", fmt::format("a stop string has 1 to {} bytes", kMaxStopBytes));
  }
  if (!result.empty() && context.tokenizer == nullptr)
    refuse_parameter("stop", "the model has no tokenizer, so there is no text to stop at");
  return result;
}

void parse_sampling(RequestMembers& members, SamplingOptions& sampling, std::uint64_t seed) {
  constexpr double kHottest = 100;
  sampling.temperature = members.number("temperature", sampling.temperature, 0, kHottest);
  sampling.top_p = members.number("top_p", sampling.top_p, 0, 1);
  sampling.top_k = members.integer("top_k", 0, -1, INT32_MAX);
  sampling.top_k = std::max<std::int64_t>(sampling.top_k, 0);  // -1 means all in other servers
  const Json* wanted = members.find("seed");
  sampling.seed =
      wanted == nullptr ? seed : static_cast<std::uint64_t>(members.integer("seed", 0, INT64_MIN, INT64_MAX));
}

void parse_stream(RequestMembers& members, CompletionRequest& request) {
  request.stream = members.boolean("stream");
  const Json* options = members.find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) refuse_parameter("stream_options", "stream_options: only with stream");
  if (!options->is_object()) refuse_parameter("stream_options", "stream_options must be an object");
  RequestMembers inner(*options);
  request.include_usage = inner.boolean("include_usage");
  request.warnings = inner.warnings();
}

void check_lengths(const CompletionRequest& request, const CompletionContext& context) {
  const char* const parameter = request.is_chat ? "messages" : "prompt";
  for (const auto& prompt : request.prompts)
    if (static_cast<std::int64_t>(prompt.size()) > context.max_length - request.max_tokens)
      refuse_parameter(
          parameter,
          fmt::format("a prompt of {} tokens and max_tokens {} are together more than the {} tokens that "
                      "this server allows (tetrad serve --max-length)",
                      prompt.size(), request.max_tokens, context.max_length));
  const std::int64_t sequences = static_cast<std::int64_t>(request.prompts.size()) * request.n;
  if (sequences > context.max_sequences)
    refuse_parameter("n", fmt::format("{} prompts with n {} are more than the {} sequences of one request",
                                      request.prompts.size(), request.n, context.max_sequences));
  if (request.tokens() > context.max_tokens)
    refuse_parameter(parameter,
                     fmt::format("prompts and continuations have {} tokens in all, more than the {} of one "
                                 "request: send fewer at a time",
                                 request.tokens(), context.max_tokens));
}

/// What chats have too.
void parse_common(RequestMembers& members, const CompletionContext& context, std::uint64_t seed,
                  CompletionRequest& request) {
  if (const Json* model = members.find("model"); model != nullptr && *model != context.model)
    throw ApiError(404, fmt::format("the model here is {:?}", context.model), "model", "model_not_found");
  members.refuse_what_changes_the_text();
  members.find("user");  // says nothing about the text
  parse_stream(members, request);
  request.n = members.integer("n", 1, 1, kMaxN);
  if (members.integer("best_of", request.n, 1, kMaxN) != request.n)
    refuse_parameter("best_of", "best_of: only as many as n, since nothing is chosen here");
  parse_sampling(members, request.sampling, seed);
  request.stop = parse_stop(members.find("stop"), context);
}

/// A string, or a list of parts that are texts.
std::string parse_content(const Json* value) {
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  if (value == nullptr || !value->is_array())
    refuse_parameter("messages", "the content of a message must be a string or a list of parts of type text");
  std::string text;
  for (const Json& part : *value) {
    const Json& content = member_of(part, "text");
    if (member_of(part, "type") != "text" || !content.is_string())
      refuse_parameter("messages",
                       "a message has a part that is no text: only {type: text, text: ...} is read");
    text += content.get_ref<const std::string&>();
  }
  return text;
}

std::vector<ChatMessage> parse_messages(const Json* value, CompletionRequest& request) {
  if (value == nullptr || !value->is_array() || value->empty())
    refuse_parameter("messages", "messages must be a list of at least one message");
  std::vector<ChatMessage> messages;
  for (const Json& entry : *value) {
    if (!entry.is_object()) refuse_parameter("messages", "a message must be an object");
    RequestMembers members(entry);
    const Json* role = members.find("role");
    std::string name = role != nullptr && role->is_string() ? role->get<std::string>() : "";
    if (name == "developer") name = "system";  // as OpenAI's newer models call it
    if (name != "system" && name != "user" && name != "assistant")
      refuse_parameter("messages", "the role of a message must be system, user or assistant");
    members.refuse_unless("tool_calls", Json::array(), "there are no tools here");
    messages.push_back({std::move(name), parse_content(members.find("content"))});
    if (request.warnings.empty()) request.warnings = members.warnings();
  }
  return messages;
}

}  // namespace

std::vector<std::int32_t> parse_token_ids(const Json& value, const std::string& what, std::int64_t vocab) {
  if (!value.is_array() || value.empty())
    refuse_parameter(what, what + ": a list of token ids must have at least one");
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    try {
      ids.push_back(static_cast<std::int32_t>(checked_integer(id, "a token id", 0, vocab - 1)));
    } catch (const Error& error) {
      refuse_parameter(what, fmt::format("{}: {}", what, error.what()));
    }
  }
  return ids;
}

CompletionRequest parse_completion_request(std::string_view body, const CompletionContext& context,
                                           std::uint64_t seed) {
  const Json json = parse_request_json(body, context.max_tokens);
  RequestMembers members(json);
  CompletionRequest request;
  parse_common(members, context, seed, request);
  members.refuse_unless("suffix", "", "text cannot be inserted here");
  request.max_tokens = members.integer("max_tokens", request.max_tokens, 0, context.max_length);
  if (members.find("logprobs") != nullptr) request.logprobs = members.integer("logprobs", 0, 0, kMaxLogprobs);
  request.echo = members.boolean("echo");
  request.return_token_ids = members.boolean("return_token_ids");
  request.ignore_eos = members.boolean("ignore_eos");
  request.prompts = parse_prompts(members.find("prompt"), context);
  for (std::string& warning : members.warnings()) request.warnings.push_back(std::move(warning));
  check_lengths(request, context);
  return request;
}

std::size_t CompletionRequest::bytes() const {
  // Roughly what lists and JSON take at the moment when most of it exists: tokens, texts, the response. A
  // score has a name and an object with as many members as tokens are named beside it.
  constexpr std::int64_t kSequence = 2048, kRead = 32, kEchoed = 128, kGenerated = 256, kScored = 512,
                         kNamed = 256;
  std::int64_t read = 0;
  for (const auto& prompt : prompts) read += static_cast<std::int64_t>(prompt.size());
  read *= n;
  const std::int64_t sequences = static_cast<std::int64_t>(prompts.size()) * n;
  const std::int64_t generated = sequences * max_tokens;
  const std::int64_t scored = logprobs ? generated + (echo ? read : 0) : 0;
  return static_cast<std::size_t>(sequences * kSequence + read * (kRead + (echo ? kEchoed : 0)) +
                                  generated * kGenerated +
                                  scored * (kScored + kNamed * logprobs.value_or(0)));
}

CompletionRequest parse_chat_request(std::string_view body, const CompletionContext& context,
                                     std::uint64_t seed) {
  if (context.chat == nullptr || context.tokenizer == nullptr)
    throw HttpError(404, context.tokenizer == nullptr
                             ? "there is no chat, because the model has no tokenizer: see /v1/completions"
                             : "there is no chat: start the server with --chat-template, or see "
                               "/v1/completions, which continues texts");
  const Json json = parse_request_json(body, context.max_tokens);
  RequestMembers members(json);
  CompletionRequest request;
  request.is_chat = true;
  parse_common(members, context, seed, request);
  members.refuse_unless("logprobs", false, "only /v1/completions has them here");
  members.refuse_unless("top_logprobs", 0, "only /v1/completions has them here");
  request.return_token_ids = members.boolean("return_token_ids");
  request.ignore_eos = members.boolean("ignore_eos");
  const std::vector<ChatMessage> messages = parse_messages(members.find("messages"), request);
  request.prompts = {encode_prompt(render_chat(*context.chat, messages), context, "messages")};
  request.stop.emplace_back(context.chat->mark);
  const auto read = static_cast<std::int64_t>(request.prompts[0].size());
  // As long as it goes, unless the client says something; its newer name counts.
  const std::int64_t rest = std::clamp<std::int64_t>(
      context.max_length - read, 1, std::max<std::int64_t>(context.max_tokens / request.n - read, 1));
  request.max_tokens = members.integer("max_tokens", rest, 1, context.max_length);
  request.max_tokens = members.integer("max_completion_tokens", request.max_tokens, 1, context.max_length);
  for (std::string& warning : members.warnings()) request.warnings.push_back(std::move(warning));
  check_lengths(request, context);
  return request;
}

}  // namespace tetrad
