// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tetrad/io/strict_json.h"
#include "tetrad/serve/api_error.h"
#include "tetrad/serve/completion_stream.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpResponse json_response(const Json& json, std::string note = {}) {
  HttpResponse response;
  response.content_type = "application/json";
  // Half a character at the end of a text becomes U+FFFD.
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  response.note = std::move(note);
  return response;
}

Json error_json(const HttpError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const auto* const api = dynamic_cast<const ApiError*>(&error);
  return {{"error",
           {{"message", error.what()},
            {"type", error.status() < 500 ? "invalid_request_error" : "server_error"},
            {"param", api != nullptr ? or_null(api->parameter()) : Json()},
            {"code", api != nullptr ? or_null(api->code()) : Json()}}}};
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

std::string note_of(const CompletionRequest& request, std::size_t completion_tokens) {
  const Json usage = usage_json(request, completion_tokens);
  return fmt::format("{} sequences, {} + {} tokens",
                     request.prompts.size() * static_cast<std::size_t>(request.n),
                     usage["prompt_tokens"].get<std::int64_t>(), completion_tokens);
}

Json parse_body(const HttpRequest& request) {
  try {
    return parse_strict_json(request.body, "the body", {.bytes = request.body.size(), .depth = 4});
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

/// A page that a browser shows cannot send this without asking first, so it cannot make the server compute.
void check_content_type(const HttpRequest& request) {
  const std::string_view type = request.header("content-type").value_or("");
  const std::string_view name = type.substr(0, type.find_first_of("; \t"));
  constexpr std::string_view kJson = "application/json";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (!std::ranges::equal(name, kJson, same))
    throw HttpError(415, "the body must be JSON: send the header 'Content-Type: application/json'");
}

}  // namespace

/// A completion under way, which has its share of memory until the response is sent.
struct Service::Work {
  /// Throws HttpError (503) if there is too much already.
  Work(CompletionRequest asked, std::int64_t limit, std::atomic<std::int64_t>& all)
      : request(std::move(asked)), tokens(request.tokens()), total(all) {
    if (total.fetch_add(tokens) + tokens <= limit) return;
    total -= tokens;
    throw HttpError(503, "too many tokens are asked for at once; try again later");
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() { total -= tokens; }

  CompletionRequest request;
  std::int64_t tokens;
  std::atomic<std::int64_t>& total;
  Json frame;  //!< members of the response, or of every event, that do not depend on the results
};

Service::Service(Engine& engine, CompletionContext context, Log log)
    : engine_(engine),
      context_(std::move(context)),
      log_(std::move(log)),
      started_(now()),
      seed_(std::random_device()()) {
  seed_ = seed_ << 32 | std::random_device()();
}

HttpResponse Service::describe(const HttpError& error) const {
  HttpResponse response =
      json_response(error_json(error), fmt::format("{:?}", std::string_view(error.what())));
  response.status = error.status();
  if (error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse Service::answer(const HttpRequest& request, const IsGone& is_gone) {
  struct Route {
    const char* method;
    std::string path;
    std::function<HttpResponse()> answer;
  };
  const std::array routes = {
      Route{"POST", "/v1/completions", [&] { return complete(request, is_gone); }},
      Route{"POST", "/tokenize", [&] { return tokenize(request); }},
      Route{"POST", "/detokenize", [&] { return detokenize(request); }},
      Route{"GET", "/tokenizer_info", [&] { return tokenizer_info(); }},
      Route{"GET", "/v1/models", [&] { return models(); }},
      Route{"GET", "/v1/models/" + context_.model, [&] { return model(); }},
      Route{"GET", "/health", [&] { return health(); }},
  };
  const auto route = std::ranges::find(routes, request.path, &Route::path);
  if (route == routes.end()) {
    if (request.path.starts_with("/v1/chat/"))
      throw HttpError(404, "there is no chat: the model continues texts, see /v1/completions");
    throw HttpError(404, fmt::format("there is no {}", request.path.substr(0, 200)));
  }
  if (request.method != route->method) {
    const std::string allowed = route->method == std::string_view("GET") ? "GET, HEAD" : route->method;
    HttpResponse response =
        describe(HttpError(405, fmt::format("{} is asked with {}", route->path, allowed)));
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (request.method == "POST") check_content_type(request);
  return route->answer();
}

HttpResponse Service::complete(const HttpRequest& request, const IsGone& is_gone) {
  constexpr std::int64_t kLargestRequestsAtOnce = 4;
  const std::uint64_t number = completions_++;
  auto work = std::make_shared<Work>(parse_completion_request(request.body, context_, seed_ + number),
                                     kLargestRequestsAtOnce * context_.max_tokens, tokens_);
  work->frame = {{"id", fmt::format("cmpl-{:x}-{}", seed_ & 0xFFFFFFFFu, number)},
                 {"object", "text_completion"},
                 {"created", now()},
                 {"model", context_.model}};
  if (work->request.stream) return stream(std::move(work), is_gone);
  const std::vector<Generation> generations = generate(work->request, is_gone, {});
  Json response = completion_response(work->request, context_, generations);
  response.update(work->frame);
  return json_response(response, note_of(work->request, response["usage"]["completion_tokens"]));
}

std::vector<Generation> Service::generate(const CompletionRequest& request, const IsGone& is_gone,
                                          const Engine::OnProgress& on_progress) {
  try {
    return engine_.run(tasks_of(request, context_), is_gone, on_progress);
  } catch (const EngineError& error) {
    throw HttpError(status_of(error.kind()), error.what());
  }
}

HttpResponse Service::stream(std::shared_ptr<Work> work, const IsGone& is_gone) {
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
      return fmt::format("{:?}", std::string_view(error.what()));
    }
    stream.finish();
    return note_of(request, stream.completion_tokens());
  };
  return response;
}

const Tokenizer& Service::tokenizer() const {
  if (context_.tokenizer == nullptr) throw HttpError(404, "the model has no tokenizer");
  return *context_.tokenizer;
}

HttpResponse Service::tokenize(const HttpRequest& request) const {
  const Json body = parse_body(request);
  const Json& prompt = member_of(body, "prompt");
  if (!prompt.is_string()) throw ApiError(400, "prompt must be a string", "prompt");
  const Json& special = member_of(body, "add_special_tokens");
  if (!special.is_null() && !special.is_boolean())
    throw ApiError(400, "add_special_tokens must be true or false", "add_special_tokens");
  std::vector<std::int32_t> ids = tokenizer().encode(prompt.get_ref<const std::string&>());
  if (special == true) {  // not by default: prompts of completions have none either
    ids.insert(ids.begin(), tokenizer().prefix().begin(), tokenizer().prefix().end());
    ids.insert(ids.end(), tokenizer().suffix().begin(), tokenizer().suffix().end());
  }
  return json_response({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", context_.max_length}});
}

HttpResponse Service::detokenize(const HttpRequest& request) const {
  const Json body = parse_body(request);
  const Json& tokens = member_of(body, "tokens");
  const bool is_empty = tokens.is_array() && tokens.empty();
  const std::vector<std::int32_t> ids =
      is_empty ? std::vector<std::int32_t>() : parse_token_ids(tokens, "tokens", context_.vocab);
  return json_response({{"prompt", tokenizer().decode(ids)}});
}

HttpResponse Service::tokenizer_info() const {
  const std::optional<std::int32_t> end = tokenizer().end_of_document();
  const std::span<const std::int32_t> prefix = tokenizer().prefix();
  return json_response({{"tokenizer_class", tokenizer().description()},
                        {"eos_token", end ? Json(tokenizer().decode(std::span(&*end, 1))) : Json()},
                        {"bos_token", prefix.size() == 1 ? Json(tokenizer().decode(prefix)) : Json()},
                        {"pad_token", nullptr},
                        {"chat_template", nullptr},
                        {"vocab_size", tokenizer().vocab()},
                        {"model_max_length", context_.max_length}});
}

Json Service::model_json() const {
  return {{"id", context_.model},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "tetrad"},
          {"max_model_len", context_.max_length}};
}

HttpResponse Service::models() const {
  return json_response({{"object", "list"}, {"data", Json::array({model_json()})}});
}

HttpResponse Service::model() const { return json_response(model_json()); }

HttpResponse Service::health() const {
  if (!engine_.is_well()) throw HttpError(503, "the last computation failed: see the log");
  return json_response({{"status", "ok"}});
}

}  // namespace tetrad
