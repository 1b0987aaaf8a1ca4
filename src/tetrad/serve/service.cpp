#include "tetrad/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tetrad/io/strict_json.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpResponse json_response(const Json& json, std::string note = {}) {
  // Half a character at the end of a text becomes U+FFFD.
  return {200, json.dump(-1, ' ', false, Json::error_handler_t::replace), {}, std::move(note)};
}

Json parse_body(const HttpRequest& request) {
  try {
    return parse_strict_json(request.body, "the body", {.bytes = request.body.size(), .depth = 4});
  } catch (const Error& error) {
    throw HttpError(400, error.what());
  }
}

/// A page that a browser shows cannot send this without asking first, so it cannot make the server compute.
void check_content_type(const HttpRequest& request) {
  const std::string_view type = request.header("content-type").value_or("");
  const std::string_view name = type.substr(0, type.find_first_of("; "));
  constexpr std::string_view kJson = "application/json";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (!std::ranges::equal(name, kJson, same))
    throw HttpError(415, "the body must be JSON: send the header 'Content-Type: application/json'");
}

}  // namespace

Service::Service(Engine& engine, CompletionContext context)
    : engine_(engine), context_(std::move(context)), started_(now()), seed_(std::random_device()()) {
  seed_ = seed_ << 32 | std::random_device()();
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
      Route{"GET", "/v1/models/" + context_.model, [&] { return models(); }},
      Route{"GET", "/health",
            [] {
              return json_response({{"status", "ok"}});
            }},
  };
  const auto route = std::ranges::find(routes, request.path, &Route::path);
  if (route == routes.end()) {
    if (request.path.starts_with("/v1/chat/"))
      throw HttpError(404, "there is no chat: the model continues texts, see /v1/completions");
    throw HttpError(404, fmt::format("there is no {}", request.path.substr(0, 200)));
  }
  if (request.method != route->method) {
    HttpResponse response =
        error_response(HttpError(405, fmt::format("{} is asked with {}", route->path, route->method)));
    response.headers.emplace_back("Allow", route->method);
    return response;
  }
  if (request.method == "POST") check_content_type(request);
  return route->answer();
}

HttpResponse Service::complete(const HttpRequest& request, const IsGone& is_gone) {
  const std::uint64_t number = completions_++;
  const CompletionRequest wanted = parse_completion_request(request.body, context_, seed_ + number);
  const std::vector<Generation> generations = engine_.run(tasks_of(wanted, context_), is_gone);
  Json response = completion_response(wanted, context_, generations);
  response["id"] = fmt::format("cmpl-{:x}-{}", seed_ & 0xFFFFFFFFu, number);
  response["created"] = now();
  const Json& usage = response["usage"];
  std::string note =
      fmt::format("{} sequences, {} + {} tokens", generations.size(),
                  usage["prompt_tokens"].get<std::int64_t>(), usage["completion_tokens"].get<std::int64_t>());
  return json_response(response, std::move(note));
}

const Tokenizer& Service::tokenizer() const {
  if (context_.tokenizer == nullptr) throw HttpError(404, "the model has no tokenizer");
  return *context_.tokenizer;
}

HttpResponse Service::tokenize(const HttpRequest& request) const {
  const Json body = parse_body(request);
  const Json& prompt = member_of(body, "prompt");
  if (!prompt.is_string()) throw HttpError(400, "prompt must be a string", "prompt");
  // add_special_tokens changes nothing: these tokenizers add none.
  const std::vector<std::int32_t> ids = tokenizer().encode(prompt.get_ref<const std::string&>());
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
  return json_response({{"tokenizer_class", tokenizer().description()},
                        {"eos_token", end ? Json(tokenizer().decode(std::span(&*end, 1))) : Json()},
                        {"bos_token", nullptr},
                        {"pad_token", nullptr},
                        {"chat_template", nullptr},
                        {"vocab_size", tokenizer().vocab()},
                        {"model_max_length", context_.max_length}});
}

HttpResponse Service::models() const {
  const Json model = {{"id", context_.model},
                      {"object", "model"},
                      {"created", started_},
                      {"owned_by", "tetrad"},
                      {"max_model_len", context_.max_length}};
  return json_response({{"object", "list"}, {"data", Json::array({model})}});
}

}  // namespace tetrad
