// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/model_routes.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "tetrad/io/strict_json.h"
#include "tetrad/serve/chat_template.h"
#include "tetrad/serve/completion_stream.h"
#include "tetrad/serve/json_response.h"
#include "tetrad/serve/request_members.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int status_of(EngineError::Kind kind) {
  switch (kind) {
    case EngineError::Kind::abandoned:
      return 499;
    case EngineError::Kind::unavailable:
      return 503;
    default:
      return 500;
  }
}

HttpNote note_of(const CompletionRequest& request, std::size_t completion_tokens) {
  const std::int64_t read = usage_json(request, completion_tokens)["prompt_tokens"];
  const auto written = static_cast<std::int64_t>(completion_tokens);
  const std::int64_t sequences = std::ssize(request.prompts) * request.n;
  HttpNote note{fmt::format("{} sequences, {} + {} tokens", sequences, read, written),
                {{"sequences", sequences}, {"prompt_tokens", read}, {"completion_tokens", written}}};
  for (const std::string& warning : request.warnings) note.text += "; " + warning;
  return note;
}

/// A list of numbers without a value of JSON for each of them.
std::string list_of(const std::vector<std::int32_t>& ids) {
  constexpr std::size_t kLongest = 12;
  std::string text = "[";
  text.reserve(ids.size() * kLongest / 2 + 2);
  for (const std::int32_t id : ids)
    fmt::format_to(std::back_inserter(text), "{}{}", text.size() > 1 ? "," : "", id);
  return text + "]";
}

}  // namespace

/// A completion under way.
struct ModelRoutes::Work {
  CompletionRequest request;
  Json frame;  //!< members of the response, or of every event, that do not depend on the results
};

ModelRoutes::ModelRoutes(Engine& engine, CompletionContext context)
    : engine_(engine), context_(std::move(context)), started_(now()), seed_(std::random_device()()) {
  seed_ = seed_ << 32 | std::random_device()();
}

HttpResponse ModelRoutes::complete(const HttpRequest& request, const HttpExchange& exchange, bool is_chat) {
  const std::uint64_t number = completions_++;
  auto work = std::make_shared<Work>();
  work->request =
      (is_chat ? parse_chat_request : parse_completion_request)(request.body, context_, seed_ + number);
  exchange.memory.add(work->request.bytes());
  const bool is_stream = work->request.stream;
  const char* const object = !is_chat    ? "text_completion"
                             : is_stream ? "chat.completion.chunk"
                                         : "chat.completion";
  work->frame = {
      {"id", fmt::format("{}-{:x}-{}", is_chat ? "chatcmpl" : "cmpl", seed_ & 0xFFFFFFFFu, number)},
      {"object", object},
      {"created", now()},
      {"model", context_.model}};
  if (is_stream) return stream(std::move(work), exchange.is_gone);
  const std::vector<Generation> generations = generate(work->request, exchange.is_gone, {});
  Json response = completion_response(work->request, context_, generations);
  response.update(work->frame);
  return json_response(response, note_of(work->request, response["usage"]["completion_tokens"]));
}

std::vector<Generation> ModelRoutes::generate(const CompletionRequest& request, const IsGone& is_gone,
                                              const Engine::OnProgress& on_progress) {
  try {
    return engine_.run(tasks_of(request, context_), is_gone, on_progress);
  } catch (const EngineError& error) {
    throw HttpError(status_of(error.kind()), error.what());
  }
}

HttpResponse ModelRoutes::stream(std::shared_ptr<Work> work, const IsGone& is_gone) {
  HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.headers = {{"Cache-Control", "no-cache"}};
  response.stream = [this, work = std::move(work), is_gone](const BodyWriter& write) {
    const CompletionRequest& request = work->request;
    bool begun = false;
    const BodyWriter send = [&](std::string_view event) {
      begun = true;
      write(event);
    };
    CompletionStream stream(request, context_, work->frame, send);
    try {
      generate(request, is_gone, [&](std::size_t task, const Generation& news, bool is_done) {
        stream.add(task, news, is_done);
      });
    } catch (const HttpError& error) {
      if (!begun) throw;  // it can still be the response
      stream.fail(error_json(error));
      return note_of(error);
    }
    stream.finish();
    return note_of(request, stream.completion_tokens());
  };
  return response;
}

const Tokenizer& ModelRoutes::tokenizer() const {
  if (context_.tokenizer == nullptr) throw HttpError(404, "the model has no tokenizer");
  return *context_.tokenizer;
}

HttpResponse ModelRoutes::tokenize(const HttpRequest& request) const {
  std::vector<std::int32_t> ids;
  bool with_special = false;
  {
    const Json body = parse_request_json(request.body, 0);
    RequestMembers members(body);
    const Json* prompt = members.find("prompt");
    if (prompt == nullptr || !prompt->is_string()) refuse_parameter("prompt", "prompt must be a string");
    with_special = members.boolean("add_special_tokens");  // not by default: prompts of completions have none
    ids = tokenizer().encode(prompt->get_ref<const std::string&>());
  }
  if (with_special) {
    ids.insert(ids.begin(), tokenizer().prefix().begin(), tokenizer().prefix().end());
    ids.insert(ids.end(), tokenizer().suffix().begin(), tokenizer().suffix().end());
  }
  HttpResponse response;
  response.content_type = "application/json";
  response.body =
      fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", ids.size(), context_.max_length);
  response.body += list_of(ids);
  response.body += '}';
  return response;
}

HttpResponse ModelRoutes::detokenize(const HttpRequest& request, const HttpExchange& exchange) const {
  constexpr std::size_t kForms = 8;  // the text, as JSON and as a response, where a byte may become six
  std::vector<std::int32_t> ids;
  {
    const Json body = parse_request_json(request.body, context_.max_tokens);
    const Json& tokens = member_of(body, "tokens");
    const bool is_empty = tokens.is_array() && tokens.empty();
    if (!is_empty) ids = parse_token_ids(tokens, "tokens", context_.vocab);
  }
  std::string text = tokenizer().decode(ids);
  exchange.memory.add(kForms * text.size());
  return json_response({{"prompt", std::move(text)}});
}

HttpResponse ModelRoutes::tokenizer_info() const {
  const std::optional<std::int32_t> end = tokenizer().end_of_document();
  const std::span<const std::int32_t> prefix = tokenizer().prefix();
  return json_response({{"tokenizer_class", tokenizer().description()},
                        {"eos_token", end ? Json(tokenizer().decode(std::span(&*end, 1))) : Json()},
                        {"bos_token", prefix.size() == 1 ? Json(tokenizer().decode(prefix)) : Json()},
                        {"pad_token", nullptr},
                        {"chat_template", context_.chat != nullptr ? Json(context_.chat->name) : Json()},
                        {"vocab_size", tokenizer().vocab()},
                        {"model_max_length", context_.max_length}});
}

Json ModelRoutes::model_json() const {
  return {{"id", context_.model},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "tetrad"},
          {"max_model_len", context_.max_length}};
}

HttpResponse ModelRoutes::models() const {
  return json_response({{"object", "list"}, {"data", Json::array({model_json()})}});
}

HttpResponse ModelRoutes::model(const std::string& name) const {
  if (name != context_.model)
    throw ApiError(404, fmt::format("the model here is {:?}", context_.model), "model", "model_not_found");
  return json_response(model_json());
}

}  // namespace tetrad
