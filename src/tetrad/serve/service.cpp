// SPDX-License-Identifier: Apache-2.0
#include "tetrad/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tetrad/http/ascii.h"
#include "tetrad/io/json_text.h"
#include "tetrad/serve/json_response.h"

namespace tetrad {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kModels = "/v1/models/";

/// A page that a browser shows cannot send this without asking first, so it cannot make the server compute.
void check_content_type(const HttpRequest& request) {
  const std::string_view type = request.header("content-type").value_or("");
  if (lower_case(type.substr(0, type.find_first_of("; \t"))) != "application/json")
    throw HttpError(415, "the body must be JSON: send the header 'Content-Type: application/json'");
}

}  // namespace

struct Service::Route {
  std::string_view path;
  std::string_view method;
  HttpResponse (*answer)(Service& service, const HttpRequest& request, const HttpExchange& exchange);
  bool is_open = false;  //!< also to those without a key
};

std::span<const Service::Route> Service::routes() {
  using Request = HttpRequest;
  using Exchange = HttpExchange;
  static constexpr std::array kRoutes = {
      Route{"/v1/completions", "POST",
            [](Service& s, const Request& r, const Exchange& e) { return s.model().complete(r, e, false); }},
      Route{"/v1/chat/completions", "POST",
            [](Service& s, const Request& r, const Exchange& e) { return s.model().complete(r, e, true); }},
      Route{"/tokenize", "POST",
            [](Service& s, const Request& r, const Exchange&) { return s.model().tokenize(r); }},
      Route{"/detokenize", "POST",
            [](Service& s, const Request& r, const Exchange& e) { return s.model().detokenize(r, e); }},
      Route{"/tokenizer_info", "GET",
            [](Service& s, const Request&, const Exchange&) { return s.model().tokenizer_info(); }},
      Route{"/v1/models", "GET",
            [](Service& s, const Request&, const Exchange&) { return s.model().models(); }},
      Route{kModels, "GET",
            [](Service& s, const Request& r, const Exchange&) {
              return s.model().model(r.path.substr(kModels.size()));
            }},
      Route{"/health", "GET", [](Service& s, const Request&, const Exchange&) { return s.health(); }, true},
      Route{"/ready", "GET", [](Service& s, const Request&, const Exchange&) { return s.ready(); }, true},
      Route{"/version", "GET", [](Service& s, const Request&, const Exchange&) { return s.version(); }},
      Route{"/metrics", "GET", [](Service& s, const Request&, const Exchange&) { return s.metrics(); }},
  };
  return kRoutes;
}

const Service::Route* Service::find(const std::string& path) {
  const std::string_view wanted = path.starts_with(kModels) ? kModels : std::string_view(path);
  const auto found = std::ranges::find(routes(), wanted, &Route::path);
  return found == routes().end() ? nullptr : &*found;
}

void Service::open(Engine& engine, CompletionContext context) {
  owned_ = std::make_unique<ModelRoutes>(engine, std::move(context));
  model_ = owned_.get();
}

void Service::give_up() {
  if (ModelRoutes* const model = model_) model->engine().stop();
}

ModelRoutes& Service::model() const {
  ModelRoutes* const model = model_;
  if (model == nullptr) throw HttpError(503, "the model is being loaded; try again later");
  return *model;
}

std::size_t Service::admit(const HttpRequest& head) {
  // What a byte of JSON may become, at worst: a value of the library (37 bytes, in a list that grows) or a
  // letter of a word that a tokenizer takes apart (45 bytes), beside the body, its text and the answer.
  constexpr std::size_t kPerByte = 64;
  const Route* const route = find(head.path);
  if (options_.key && (route == nullptr || !route->is_open)) options_.key->check(head);
  return route != nullptr && route->method == "POST" ? kPerByte : 1;
}

HttpResponse Service::describe(const HttpError& error) const {
  HttpResponse response = json_response(error_json(error), note_of(error));
  response.status = error.status();
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse Service::answer(const HttpRequest& request, const HttpExchange& exchange) {
  const Route* const route = find(request.path);
  if (route == nullptr) throw HttpError(404, fmt::format("there is no {}", request.path.substr(0, 200)));
  if (request.method != route->method) {
    const std::string allowed = route->method == "GET" ? "GET, HEAD" : std::string(route->method);
    HttpResponse response =
        describe(HttpError(405, fmt::format("{} is asked with {}", route->path, allowed)));
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (request.method == "POST") check_content_type(request);
  return route->answer(*this, request, exchange);
}

HttpResponse Service::health() const {
  const ModelRoutes* const model = model_;
  if (model != nullptr && !model->engine().is_well())
    throw HttpError(503, "the last computation failed: see the log");
  return json_response({{"status", model != nullptr ? "ok" : "loading"}});
}

HttpResponse Service::ready() const {
  if (is_stopping_) throw HttpError(503, "the server is stopping");
  if (!model().engine().is_well()) throw HttpError(503, "the last computation failed: see the log");
  return json_response({{"status", "ready"}});
}

HttpResponse Service::version() const {
  return json_response({{"version", options_.version}, {"build", options_.build}});
}

HttpResponse Service::metrics() const {
  Exposition out("tetrad_serve_");
  const ModelRoutes* const model = model_;
  out.family("info", "gauge", "What is served.");
  out.sample(std::int64_t{1}, {{"model", model != nullptr ? model->context().model : ""},
                               {"version", options_.version},
                               {"build", options_.build}});
  out.gauge("ready", "1 if requests are answered, 0 while the model is loaded or the server stops.",
            std::int64_t{model != nullptr && !is_stopping_ ? 1 : 0});
  metrics_.write(out);
  if (model != nullptr) {
    const EngineFigures figures = model->engine().figures();
    out.gauge("waiting_sequences", "Sequences that wait for a place.", figures.waiting);
    out.gauge("active_sequences", "Sequences that are computed.", figures.active);
    out.counter("rounds_total", "Rounds of the engine, in each of which every text grows by a token.",
                figures.rounds);
    out.counter("prompt_tokens_total", "Tokens of prompts that were read.", figures.prompt_tokens);
    out.counter("generated_tokens_total", "Tokens that were generated.", figures.generated_tokens);
  }
  if (options_.memory != nullptr) {
    const auto bytes = [](std::size_t count) { return static_cast<std::int64_t>(count); };
    out.gauge("memory_held_bytes", "Memory that requests under way may take.",
              bytes(options_.memory->held()));
    out.gauge("memory_peak_bytes", "The most of it so far.", bytes(options_.memory->peak()));
    out.gauge("memory_budget_bytes", "The most that they may have.", bytes(options_.memory->limit()));
  }
  HttpResponse response;
  response.content_type = kExpositionType;
  response.body = out.take();
  return response;
}

void Service::log(const HttpRecord& record) {
  const Route* const route = find(record.path);
  const std::string name = route == nullptr ? "other" : std::string(route->path);
  metrics_.add(name, record);
  if (options_.log) options_.log(options_.logs_json ? json_line(record, name) : text_line(record));
}

std::string json_line(const HttpRecord& record, const std::string& route) {
  Json line = {{"time", timestamp(record.time)},
               {"peer", record.peer},
               {"method", record.method.substr(0, 20)},
               {"route", route},
               {"path", record.path.substr(0, 200)},
               {"status", record.status},
               {"bytes", record.bytes},
               {"seconds", record.seconds}};
  for (const auto& [name, count] : record.note.counts) line[name] = count;
  if (!record.note.text.empty()) line["note"] = record.note.text;
  return json_text(line);
}

}  // namespace tetrad
